#include "product.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <new>
#include <thread>

namespace ltp {
namespace {

constexpr std::align_val_t kLine{64};  // of the cache
constexpr size_t kCachedSums = 64 * 1024, kCachedBands = 96 * 1024;  // floats: a second-level cache of a megabyte holds both
#ifndef LTP_UNCACHED
#define LTP_UNCACHED (3 << 19)
#endif
constexpr size_t kUncached = LTP_UNCACHED;  // floats of an output: six megabytes, and few in tests
constexpr size_t kTasksPerProcessor = 4;  // so that one that is held up does not hold up all
constexpr size_t kFewestRows = 16;        // of a part
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define __SANITIZE_ADDRESS__
#endif
#endif
#ifdef __SANITIZE_ADDRESS__
constexpr size_t kMostKept = 0;  // so that it sees what is read or written beyond it
#else
constexpr size_t kMostKept = 1 << 20;  // floats of scratch memory that a thread keeps
#endif

size_t processors() {
  static const size_t count = std::max(1u, std::thread::hardware_concurrency());
  return count;
}

struct Memory {
  float* data;
  size_t floats;
};

void release(Memory& memory) {
  ::operator delete(memory.data, kLine);
  memory = {};
}

// What a thread keeps between tasks. It needs no destructor, so that it can be used until the thread's very end: a program
// may run a session while its own objects are destroyed.
thread_local Memory kept_memory;
thread_local bool keeps_none;

struct End {
  ~End() {
    release(kept_memory);
    keeps_none = true;
  }
};

// Memory of one task. Its thread keeps it for the next one: to give it back to the system and to have its pages made anew
// may take longer than a small layer.
class Scratch {
 public:
  explicit Scratch(size_t floats) {
    std::swap(mine_, kept_memory);
    if (mine_.floats < floats) {
      release(mine_);
      mine_ = {static_cast<float*>(::operator new(floats * sizeof(float), kLine)), floats};
    }
#ifdef LTP_POISON_SCRATCH
    std::fill(data(), data() + floats, std::numeric_limits<float>::quiet_NaN());
#endif
  }
  ~Scratch() {
    if (!keeps_none && mine_.floats <= kMostKept) {
      thread_local const End end;
      std::swap(mine_, kept_memory);
    }
    release(mine_);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  float* data() const { return mine_.data; }

 private:
  Memory mine_ = {};
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

size_t most_vectors(const Product& product) {
  size_t most = kMaxVectors;
  for (const Weights& weights : product.groups) {
    most = std::min(most, tile_vectors(product.path, weights, product.keeps_sums));
  }
  return most;
}

// Whether the bands of all blocks of a tile stay in the second-level cache.
bool bands_fit(const Weights& weights, size_t band) { return weights.blocks() * band <= kCachedBands; }

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
size_t row_parts(const Weights& weights, size_t tiles, size_t pitch, size_t band, bool keeps_sums) {
  const bool cut = has_sums(weights, keeps_sums) && bands_fit(weights, band);
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

Tile Tiles::operator[](size_t nth) const {
  const size_t row = across ? nth / across : nth, rows = across ? count / across : count;
  const size_t from = vectors * row / rows, some = vectors * (row + 1) / rows - from;
  if (across) {
    const size_t left = nth % across * lanes;
    return {from * positions + left, some, some * lanes, positions, std::min(lanes, positions - left), 0};
  }
  if (positions == 1) return {0, 0, 1, 1, 1, 1};
  return {from * lanes, some, some * lanes, lanes, std::min(some * lanes, positions - from * lanes), lanes};
}

Tiles Product::in_line(size_t positions) const {
  const size_t lanes = static_cast<size_t>(path.lanes), vectors = up(positions, lanes);
  const size_t count = tile_count(vectors, most_vectors(*this), images * groups.size());
  return {lanes, count, positions == 1 ? 1 : up(vectors, count) * lanes, 0, vectors, positions};
}

Tiles Product::below_each_other(size_t height, size_t width) const {
  const size_t lanes = static_cast<size_t>(path.lanes), across = up(width, lanes);
  const size_t rows = up(height, most_vectors(*this));
  return {lanes, across * rows, up(height, rows) * lanes, across, height, width};
}

std::vector<size_t> rows_of_columns(const Product& product, const Tiles& tiles) {
  std::vector<size_t> bands;
  for (const Weights& weights : product.groups) bands.push_back(weights.block() * tiles.pitch);
  return bands;
}

void for_each_job(const Product& product, const Tiles& tiles, const std::vector<size_t>& bands, const Parallel& parallel,
                  const std::function<void(const Job&)>& run) {
  const std::vector<Weights>& groups = product.groups;
  const size_t outer = product.images * groups.size();
  size_t parts = 1, most = 0;
  for (size_t g = 0; g < groups.size(); ++g) {
    parts = std::max(parts, row_parts(groups[g], tiles.count * outer, tiles.pitch, bands[g], product.keeps_sums));
  }
  const auto keeps_bands = [&](size_t g) { return parts > 1 && bands_fit(groups[g], bands[g]); };
  for (size_t g = 0; g < groups.size(); ++g) {
    most = std::max(most, (keeps_bands(g) ? groups[g].blocks() : 1) * bands[g]);
  }
  const size_t band = up(most + tiles.lanes, kLineFloats) * kLineFloats;  // copies may reach a vector beyond the end
  const size_t sums = (up(groups[0].rows(), parts) + 8) * tiles.pitch;    // fours and the rest are rounded up apart
  const size_t jobs = outer * tiles.count * parts;
  const size_t tasks = std::min(jobs, kTasksPerProcessor * processors());
  parallel(tasks, [&](size_t task) {
    const Scratch scratch(band + sums);
    const size_t begin = jobs * task / tasks, end = jobs * (task + 1) / tasks;
    for (size_t i = begin; i < end; ++i) {
      const size_t part = i % parts;
      Job job = {};
      job.tile = tiles[i / parts % tiles.count];
      job.group = i / parts / tiles.count % groups.size();
      job.image = i / parts / tiles.count / groups.size();
      job.rows = part_of_rows(groups[job.group], part, parts);
      job.band = scratch.data();
      job.band_pitch = keeps_bands(job.group) ? bands[job.group] : 0;
      job.filled = job.band_pitch && part > 0 && i > begin;
      job.sums = scratch.data() + band;
      run(job);
    }
  });
}

bool is_streamed(const Path& path, const float* out, size_t pitch, size_t floats) {
  const size_t lanes = static_cast<size_t>(path.lanes);
  return floats >= kUncached && pitch % lanes == 0 && reinterpret_cast<uintptr_t>(out) % (lanes * sizeof(float)) == 0;
}

void multiply(const Path& path, const Weights& weights, const Job& job, const Target& target, const uint32_t* begins,
              const Fill& fill) {
  const Tile& tile = job.tile;
  RowsTask task = {};
  task.step = tile.step;
  task.count = tile.count;
  task.fewer = tile.fewer;
  task.out_pitch = target.out ? target.pitch : tile.pitch;
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
    (part.height == 4 ? path.quad : path.single)[tile.vectors](task);
  };
  const RowRange& rows = job.rows;
  const size_t quads = 4 * weights.quads().rows, some = 4 * (rows.quad_last - rows.quad_first);
  for (size_t block = 0; block < weights.blocks(); ++block) {
    task.band = fill(block, job.band + block * job.band_pitch);
    task.begins = begins ? begins + block * weights.block() : nullptr;
    task.starts = block == 0;
    task.ends = block + 1 == weights.blocks();
    run(weights.quads(), block, rows.quad_first, rows.quad_last, 4 * rows.quad_first, job.sums);
    run(weights.singles(), block, rows.single_first, rows.single_last, quads + rows.single_first,
        job.sums + some * tile.pitch);
  }
}

}  // namespace ltp
