# Warnings are errors for our own code. Headers of others come in as SYSTEM and stay quiet.
function(fsdp_cts_warnings target)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wpedantic $<$<CXX_COMPILER_ID:GNU>:-Wshadow=local> -Wnon-virtual-dtor -Werror)
  # GCC 12 sees an overlap in `"literal" + std::string` where there is none (GCC bug 105651).
  target_compile_options(${target} PRIVATE $<$<AND:$<CXX_COMPILER_ID:GNU>,$<VERSION_LESS:$<CXX_COMPILER_VERSION>,13>>:-Wno-restrict>)
  # With AddressSanitizer GCC finds uninitialised values inside <regex> (GCC bug 105562).
  if(CMAKE_CXX_FLAGS MATCHES "-fsanitize=[a-z,]*address")
    target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
  endif()
endfunction()
