#pragma once

#include <string>

namespace imgd::trainer {

/// The address of a peer to whom a TCP connection of this process has sent the same data again and again
/// without an answer, which is what a lost link or a machine without power looks like from here. Empty where
/// every peer answers: the kernel of one whose process is stopped still does.
/// A connection that is silent is probed from the first call on, so that the answer is known some calls
/// later.
std::string UnansweredPeer();

}  // namespace imgd::trainer
