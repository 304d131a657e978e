// Read by the test layout.refuses, never compiled.
#include "harness/cli/commands.hpp"
