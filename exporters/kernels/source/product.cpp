#include "product.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <new>
#include <thread>

namespace ltp {
namespace {

constexpr std::align_val_t kLine{64};  // of the cache
constexpr size_t kCachedSums = 64 * 1024, kCachedBands = 96 * 1024;  // floats: a half-megabyte cache holds both
#ifndef LTP_UNCACHED
#define LTP_UNCACHED (3 << 19)
#endif
constexpr size_t kUncached = LTP_UNCACHED;  // floats of an output: six megabytes, and few in tests
constexpr size_t kTasksPerProcessor = 4;  // so that one that is held up does not hold up all
constexpr size_t kFewestRows = 16;        // of a part
#ifdef LTP_POISON_SCRATCH
constexpr size_t kMostKept = 0;  // so that sanitizers see what is read or written beyond it
#else
constexpr size_t kMostKept = 1 << 20;  // floats of scratch memory that a thread keeps
#endif

size_t processors() {
  static const size_t count = std::max(1u, std::thread::hardware_concurrency());
  return count;
}

struct Memory {
  struct Release {
    void operator()(float* data) const { ::operator delete(data, kLine); }
  };
  std::unique_ptr<float, Release> data;
  size_t floats = 0;
};

Memory& kept() {
  thread_local Memory memory;
  return memory;
}

// Memory of one task. Its thread keeps it for the next one: to give it back to the system and to have its pages made anew
// may take longer than a small layer.
class Scratch {
 public:
  explicit Scratch(size_t floats) {
    std::swap(mine_, kept());
    if (mine_.floats < floats) {
      mine_ = {};
      mine_.data.reset(static_cast<float*>(::operator new(floats * sizeof(float), kLine)));
      mine_.floats = floats;
    }
#ifdef LTP_POISON_SCRATCH
    std::fill(data(), data() + floats, std::numeric_limits<float>::quiet_NaN());
#endif
  }
  ~Scratch() {
    if (mine_.floats <= kMostKept) std::swap(mine_, kept());
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  float* data() const { return mine_.data.get(); }

 private:
  Memory mine_;
};

bool has_sums(const Weights& weights, bool keeps_sums) { return keeps_sums || weights.blocks() > 1; }

// Vectors of a tile: as many as the registers hold, but fewer, down to half of that, where the sums of all rows
// would leave the second-level cache between two blocks.
size_t tile_vectors(const Path& path, const Weights& weights, bool keeps_sums) {
  const size_t most = static_cast<size_t>(weights.quads().rows ? path.max_quad : path.max_single);
  if (!has_sums(weights, keeps_sums)) return most;
  const size_t cached = kCachedSums / (weights.rows() * static_cast<size_t>(path.lanes));
  return std::clamp(cached, up(most, 2), most);
}

// Whether the bands of all blocks of a tile stay in the second-level cache.
bool bands_fit(const Weights& weights, size_t pitch) { return weights.used_count() * pitch <= kCachedBands; }

// How many tiles the positions of one of `outer` images and groups are cut into. Few tiles that are no multiple of the
// processors leave some of them waiting for the last one: more and narrower tiles are taken where that is sooner done.
size_t tile_count(size_t vectors, size_t most, size_t outer) {
  const auto rounds = [&](size_t tiles) { return up(tiles * outer, processors()); };  // each takes vectors / tiles
  const size_t tiles = up(vectors, most), even = up(rounds(tiles) * processors(), outer);
  return tiles > 1 && 2 * vectors > even * most && rounds(even) * tiles < rounds(tiles) * even ? even : tiles;
}

// How many parts the rows of a tile are cut into. For one, so that the sums of a part stay in the second-level cache. For
// another, so that there is something to do for all processors: each of them fills the whole band again, a column of
// which costs about as much as two weights, and filling may cost a tenth of the work.
size_t row_parts(const Weights& weights, size_t tiles, size_t pitch, bool keeps_sums) {
  const bool cut = has_sums(weights, keeps_sums) && bands_fit(weights, pitch);
  const size_t for_cache = cut ? up(weights.rows() * pitch, kCachedSums) : 1;
  const size_t worth = 1 + weights.nonzeros() / (20 * std::max<size_t>(weights.used_count(), 1));
  const size_t for_processors = std::min(up(processors(), tiles), worth);
  return std::min(std::max(for_cache, for_processors), std::max<size_t>(weights.rows() / kFewestRows, 1));
}

RowRange part_of_rows(const Weights& weights, size_t part, size_t parts) {
  const size_t quads = weights.quads().rows, singles = weights.singles().rows;
  return {quads * part / parts, quads * (part + 1) / parts, singles * part / parts, singles * (part + 1) / parts};
}

}  // namespace

void for_each_job(const Path& path, const std::vector<Weights>& groups, size_t images, size_t positions, bool keeps_sums,
                  const Parallel& parallel, const std::function<void(const Job&)>& run) {
  const bool point = positions == 1;  // takes no vector
  const size_t lanes = static_cast<size_t>(path.lanes), vectors = up(positions, lanes);
  size_t most = kMaxVectors, parts = 1, columns = 0;
  for (const Weights& weights : groups) most = std::min(most, tile_vectors(path, weights, keeps_sums));
  const size_t tiles = tile_count(vectors, most, images * groups.size());
  const size_t pitch = point ? 1 : up(vectors, tiles) * lanes;
  for (const Weights& weights : groups) {
    parts = std::max(parts, row_parts(weights, tiles * images * groups.size(), pitch, keeps_sums));
  }
  const auto keeps_bands = [&](const Weights& weights) { return parts > 1 && bands_fit(weights, pitch); };
  for (const Weights& weights : groups) {
    columns = std::max(columns, (keeps_bands(weights) ? weights.blocks() : 1) * weights.block());
  }
  const size_t band = up(columns * pitch + lanes, kLineFloats) * kLineFloats;
  const size_t sums = (up(groups[0].rows(), parts) + 8) * pitch;  // fours and the rest are rounded up apart
  const size_t jobs = images * groups.size() * tiles * parts;
  const size_t tasks = std::min(jobs, kTasksPerProcessor * processors());
  parallel(tasks, [&](size_t task) {
    const Scratch scratch(band + sums);
    const size_t begin = jobs * task / tasks, end = jobs * (task + 1) / tasks;
    for (size_t i = begin; i < end; ++i) {
      const size_t part = i % parts, tile = i / parts % tiles, group = i / parts / tiles % groups.size();
      const size_t from = vectors * tile / tiles, to = vectors * (tile + 1) / tiles;
      Job job = {};
      job.image = i / parts / tiles / groups.size();
      job.group = group;
      job.rows = part_of_rows(groups[group], part, parts);
      job.first = from * lanes;
      job.count = std::min(to * lanes, positions) - job.first;
      job.vectors = point ? 0 : to - from;
      job.pitch = point ? 1 : job.vectors * lanes;
      job.band = scratch.data();
      job.band_blocks = keeps_bands(groups[group]) ? groups[group].blocks() : 1;
      job.filled = keeps_bands(groups[group]) && part > 0 && i > begin;
      job.sums = scratch.data() + band;
      run(job);
    }
  });
}

bool is_streamed(const Path& path, const float* out, size_t pitch, size_t floats) {
  const size_t lanes = static_cast<size_t>(path.lanes);
  return floats >= kUncached && pitch % lanes == 0 && reinterpret_cast<uintptr_t>(out) % (lanes * sizeof(float)) == 0;
}

void multiply(const Path& path, const Weights& weights, const Job& job, const Target& target, const Fill& fill) {
  RowsTask task = {};
  task.count = job.count;
  task.out_pitch = target.out ? target.pitch : job.pitch;
  task.low = target.limits.low;
  task.high = target.limits.high;
  task.streams = target.streams;
  const auto run = [&](const Weights::Part& part, size_t block, size_t first, size_t last, size_t row, float* sums) {
    if (first == last) return;
    task.rows = last - first;
    task.begin = part.begin.data() + block * (part.rows + 1) + first;
    task.columns = part.columns.data();
    task.values = part.values.data();
    task.bias = target.bias ? target.bias + row : nullptr;
    task.sums = sums;
    task.out = target.out ? target.out + row * target.pitch : sums;
    task.residual = target.residual ? target.residual + row * target.pitch : nullptr;
    (part.height == 4 ? path.quad : path.single)[job.vectors](task);
  };
  const RowRange& rows = job.rows;
  const size_t quads = 4 * weights.quads().rows, some = 4 * (rows.quad_last - rows.quad_first);
  for (size_t block = 0; block < weights.blocks(); ++block) {
    float* const band = job.band + (job.band_blocks > 1 ? block * weights.block() * job.pitch : 0);
    if (!job.filled) fill(block, band);
    task.band = band;
    task.starts = block == 0;
    task.ends = block + 1 == weights.blocks();
    run(weights.quads(), block, rows.quad_first, rows.quad_last, 4 * rows.quad_first, job.sums);
    run(weights.singles(), block, rows.single_first, rows.single_last, quads + rows.single_first,
        job.sums + some * job.pitch);
  }
}

}  // namespace ltp
