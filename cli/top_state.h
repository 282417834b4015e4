#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/keys.h"
#include "cli/top_data.h"

namespace imgd::cli {

/// What is on the screen of `imgcli top`, as far as its user decides it.
struct TopState {
  enum class View { kCluster, kJob };
  enum class Part { kJobs, kNodes };
  enum class Prompt { kNone, kFilter, kNumber, kCancel };

  View view = View::kCluster;
  Part part = Part::kJobs;  ///< of the cluster's view, what the arrows move in
  bool help = false;        ///< over the view
  uint64_t chosen_job = 0;  ///< in the table; 0: its first
  int node_row = 0;         ///< first line of the nodes that is shown
  uint64_t open_job = 0;    ///< of the job's view
  int lines_back = 0;       ///< of the log, below what is shown
  std::string filter;       ///< of the table
  std::string log_filter;   ///< of the log of the job's view
  Prompt prompt = Prompt::kNone;
  std::string typed;        ///< into the prompt
  uint64_t asked_job = 0;   ///< that the question of kCancel is about, whatever moves meanwhile
  std::string asked_title;  ///< "job 12 (rn50)"
};

/// What a key asks for, beyond another picture.
struct TopAct {
  enum class Kind { kNone, kQuit, kCancel };
  Kind kind = Kind::kNone;
  uint64_t job = 0;         ///< of kCancel
  bool checkpoint = false;  ///< of kCancel
};

/// Takes a key. `page`: the lines of a page.
TopAct OnKey(TopState& state, const TopData& data, const Key& key, int page);

/// The jobs of the table: those with the filter in their number, name, state, owner or reason, in any case.
std::vector<const v1::Job*> ShownJobs(const TopState& state, const TopData& data);

/// Place of the chosen job among them; 0 where it is not there.
size_t ChosenRow(const TopState& state, const std::vector<const v1::Job*>& shown);

/// The open job's lines that have the filter of the log.
std::vector<const v1::LogLine*> ShownLines(const TopState& state, const TopData& data);

/// The job that `c` is about: the open one, or the chosen one; none: nullptr.
const v1::Job* JobAtHand(const TopState& state, const TopData& data);

}  // namespace imgd::cli
