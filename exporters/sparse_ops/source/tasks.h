// What the core and the code of each instruction set say to each other: plain structs and function pointers.
//
// The product of a layer is  out[row][position] = Σ_column  weight[row][column] · band[column][position].
// A *row* is an output channel. A *column* is what a weight is multiplied by: an input channel of a product, an input
// channel under one place of the kernel of a convolution. A *position* is a pixel of the output, or a row of a matrix.
// A *tile* is some vectors of positions, one after the other or below each other; its *band* holds the values of all columns
// of a block at these positions: a row of vectors for each column, or strips that columns share (strips.h). The input itself
// may be a band.
//
// Nothing here may be an inline function or a template of the standard library: the linker keeps one copy of those for
// the whole library, and it might be one that was compiled for AVX-512.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace ltp {

// Some rows of a block of columns times a band: what the inner loops do.
struct RowsTask {
  size_t rows;               // or groups of four rows
  const uint32_t* begin;     // entries of row r (of rows 4r to 4r + 3): begin[r] to begin[r + 1]
  const uint16_t* columns;   // of the block, by entry
  const float* values;       // one by entry (four by entry)
  const float* band;         // [column][vectors of the tile]
  const uint32_t* begins;    // where columns share vectors: how many are before those of a column; or null
  bool starts, ends;         // whether this is the first, the last block
  const float* bias;         // by row, or null
  float* sums;               // [row][vectors of the tile]: results between blocks
  float* out;                // [row][out_pitch]: results of the last block
  size_t out_pitch, step;    // from one row to the next, from one vector to the next
  size_t count, fewer;       // positions to be written from the first vector on, how many fewer from each next one on; of
                             // vectors below each other all have `count`
  const float* residual;     // added to results, laid out as out; or null
  float low, high;           // limits of results
  bool streams;              // whether results go past the cache; then out and its rows begin at a whole vector
};

// One vector of a band: lane i is source[i · stride] where from <= i < to, else zero.
struct Copy {
  int64_t source;   // from the first pixel of the channel; may be outside of it
  uint16_t target;  // in the band's row of the column
  uint16_t lanes;   // a bit for each lane from `from` to `to`
  int16_t from, to;
};

// Values of some columns at consecutive positions of a convolution's output. Which pixels those are is the same for all
// channels, so it is worked out once for each place of the kernel and each tile.
struct ConvBandTask {
  const float* input;  // [channel][pixel] of the group
  size_t plane;        // pixels of a channel
  size_t stride;       // of neighbouring positions
  const Copy* copies;  // of place k of the kernel: copy_begin[k] to copy_begin[k + 1], ascending by target
  const uint32_t* copy_begin;
  size_t places;            // of the kernel
  const uint32_t* columns;  // channel · places + place, ascending
  size_t column_count;
  float* band;  // [column][pitch], and one more vector: copies may reach beyond the end of a row
  size_t pitch;
};

// What the strips of a kind (strips.h) have in a tile: a vector for each line, all with the same lanes.
struct StripCopy {
  int64_t source;         // of the first line in the image; else as in Copy
  uint16_t lanes;
  int16_t from, to;
  uint32_t above, lines;  // vectors of zeros before those of the image, and how many of the image there are
};

// Strips of some channels in a tile of a convolution.
struct StripBandTask {
  const float* input;   // [channel][pixel] of the group
  size_t plane;         // pixels of a channel
  size_t stride, line;  // of neighbouring positions; from one vector to the next
  const StripCopy* kinds;
  size_t kind_count;
  const uint32_t* strips;  // channel · kinds + kind, channels ascending
  size_t strip_count;
  float* band;            // [strip][pitch]
  size_t vectors, pitch;  // to be filled of each strip; floats from one to the next
};

// Values of some columns of rows of a matrix, transposed.
struct MatrixBandTask {
  const float* input;  // of the first row
  size_t input_pitch;  // between rows
  const uint32_t* columns;
  size_t column_count;
  size_t count;  // rows of the matrix
  float* band;   // [column][pitch]; what is behind count is zero
  size_t pitch;
};

// Copy [rows][positions] to [positions][rows].
struct TransposeTask {
  const float* from;
  size_t from_pitch;
  float* to;
  size_t to_pitch;
  size_t rows, positions;
};

constexpr int kMaxVectors = 8;       // of a tile
constexpr size_t kLineFloats = 16;  // of the cache
constexpr int kSecondLevel = 2;     // of the cache, for __builtin_prefetch

// The code for one instruction set.
struct Path {
  const char* name;
  int lanes;
  int max_single, max_quad;                               // vectors of a tile
  void (*single[kMaxVectors + 1])(const RowsTask& task);  // by vectors of the tile; 0: a single position
  void (*quad[kMaxVectors + 1])(const RowsTask& task);
  void (*conv_band)(const ConvBandTask& task);
  void (*strip_band)(const StripBandTask& task);
  void (*matrix_band)(const MatrixBandTask& task);
  void (*transpose)(const TransposeTask& task);
};

}  // namespace ltp
