#pragma once

namespace imgd {

/// The git commit that the program was built from, twelve digits, with "-dirty" behind it where files had
/// changed; empty where that was not known.
const char* Commit();

}  // namespace imgd
