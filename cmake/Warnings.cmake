# Warnings are errors for our own code. Headers of others come in as SYSTEM and stay quiet.
function(fsdp_cts_warnings target)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wpedantic -Wshadow=local -Wnon-virtual-dtor -Werror)
endfunction()
