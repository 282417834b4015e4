#pragma once

#include <cstdint>
#include <vector>

#include "common/error.h"
#include "trainer/data/shard_index.h"
#include "trainer/data/source.h"

namespace imgd::data {

constexpr uint32_t kRecordMagic = 0xCED7230A;
constexpr size_t kRecordHeaderBytes = 8;  ///< magic; kind in the upper three bits and length in the rest
constexpr size_t kImageHeaderBytes = 24;  ///< flag, label, id, id2
/// The kind of a record's piece: a record is cut where its content has the magic number.
enum RecordPiece : uint32_t { kWholeRecord = 0, kFirstPiece = 1, kMiddlePiece = 2, kLastPiece = 3 };

/// Makes the index of a RecordIO file (.rec) of MXNet's image records. The records themselves say all:
/// neither .idx nor .lst is needed. Keys are the records' ids, classes their (first) label, a whole
/// number, as im2rec writes them. Formats: dmlc-core, include/dmlc/recordio.h; MXNet,
/// src/io/image_recordio.h. Errors: kDataLoss naming the file and the byte.
Result<ShardIndex> ScanRecordIoShard(const Source& shard);

/// The content of the record whose first word is at `offset`, with the pieces of a record that was cut where
/// its content had the magic number put together again: at most `most_bytes`. Errors: kDataLoss naming the
/// file and the byte; those of the source.
Result<std::vector<uint8_t>> ReadRecord(const Source& shard, uint64_t offset, uint64_t most_bytes);

}  // namespace imgd::data
