# ccache and mold are used where they are installed; nothing depends on them.
find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # The sloppiness lets ccache keep files that use a precompiled header.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros ${CCACHE_PROGRAM})
  add_compile_options($<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>)
endif()
find_program(MOLD_PROGRAM mold)
if(MOLD_PROGRAM)
  add_link_options(-fuse-ld=mold)
endif()

# fsdp_cts_unity(<target> <files>): so many source files in one translation unit. Off, every file is compiled by itself, which
# is slower the first time and faster when one file changes: for those who work on the sources.
option(FSDP_CTS_UNITY "Compile several source files as one translation unit" ON)
set(FSDP_CTS_UNITY_TIMES 1 CACHE STRING "So many times as many: for tools that pay for headers again in every unit")
function(fsdp_cts_unity target files)
  if(FSDP_CTS_UNITY)
    math(EXPR files "${files} * ${FSDP_CTS_UNITY_TIMES}")
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${files})
  endif()
endfunction()

# fsdp_cts_built_quickly(<target>): what runs for a moment and is built by everybody: tests, mutants. A third less to compile than with -O3.
function(fsdp_cts_built_quickly target)
  target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>)
endfunction()
