# Installs the library, moves it, builds the outside project against it and trains on two ranks; then what find_package says where
# LibTorch is elsewhere, or is not. Run with
#   cmake -D BUILD=<build folder> -D WORK=<scratch folder> -D TORCH=<torch folder> -D PYTHON=<Python that has torch> -P installed_package.cmake
cmake_policy(VERSION 3.25)

function(run)
  execute_process(COMMAND ${ARGV} RESULT_VARIABLE result)
  if(NOT result EQUAL 0)
    list(JOIN ARGV " " text)
    message(FATAL_ERROR "failed with ${result}: ${text}")
  endif()
endfunction()

# expect_configured(<text>|"" <command> <options>...): configures the outside project by `command`, which must succeed, or fail with
# `text` in its output.
function(expect_configured text)
  execute_process(COMMAND ${ARGN} -S ${CMAKE_CURRENT_LIST_DIR}/outside -B ${WORK}/configured --fresh -D CMAKE_PREFIX_PATH=${WORK}/moved
    -D SAMPLE=${CMAKE_CURRENT_LIST_DIR}/../samples/train.cpp OUTPUT_VARIABLE output ERROR_VARIABLE output RESULT_VARIABLE result)
  # CMake breaks long messages into lines.
  string(REGEX REPLACE "[ \n]+" " " output "${output}")
  string(FIND "${output}" "${text}" found)
  if((text STREQUAL "" AND result EQUAL 0) OR (NOT text STREQUAL "" AND NOT result EQUAL 0 AND found GREATER -1))
    return()
  endif()
  message(FATAL_ERROR "expected \"${text}\" (nothing: success), got ${result}: ${output}")
endfunction()

file(REMOVE_RECURSE ${WORK})
run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${WORK}/prefix)
file(RENAME ${WORK}/prefix ${WORK}/moved)

# Only the configuration knows a place of LibTorch, the one to look at first; nothing knows this build or the first prefix.
file(GLOB_RECURSE files ${WORK}/moved/*.cmake)
foreach(file IN LISTS files)
  file(READ ${file} text)
  foreach(place ${TORCH} ${BUILD} ${WORK}/prefix)
    string(FIND "${text}" "${place}" found)
    if(found GREATER -1 AND NOT (place STREQUAL TORCH AND file MATCHES "/fsdp-config.cmake$"))
      message(FATAL_ERROR "${file} contains ${place}")
    endif()
  endforeach()
endforeach()

# LibTorch in another place than when fsdp was built.
file(MAKE_DIRECTORY ${WORK}/elsewhere)
file(CREATE_LINK ${TORCH} ${WORK}/elsewhere/torch SYMBOLIC)
run(${CMAKE_COMMAND} -S ${CMAKE_CURRENT_LIST_DIR}/outside -B ${WORK}/build -D CMAKE_PREFIX_PATH=${WORK}/moved
  -D FSDP_TORCH_DIR=${WORK}/elsewhere/torch -D SAMPLE=${CMAKE_CURRENT_LIST_DIR}/../samples/train.cpp)
run(${CMAKE_COMMAND} --build ${WORK}/build)
file(STRINGS ${WORK}/build/train loads_from REGEX "${WORK}/elsewhere/torch/lib")
if(loads_from STREQUAL "")
  message(FATAL_ERROR "the program does not load LibTorch from FSDP_TORCH_DIR")
endif()
run(${WORK}/build/train)

expect_configured("" ${CMAKE_COMMAND})
expect_configured("FSDP_TORCH_DIR: no LibTorch in \"/nowhere\"" ${CMAKE_COMMAND} -D FSDP_TORCH_DIR=/nowhere)
file(WRITE ${WORK}/older/lib/libtorch_cpu.so "")
file(WRITE ${WORK}/older/include/torch/headeronly/version.h "#define TORCH_VERSION_MAJOR 2\n#define TORCH_VERSION_MINOR 8\n")
expect_configured("FSDP_TORCH_DIR: LibTorch 2.8 in" ${CMAKE_COMMAND} -D FSDP_TORCH_DIR=${WORK}/older)

# The LibTorch that fsdp was built against is gone.
file(GLOB_RECURSE config ${WORK}/moved/fsdp-config.cmake)
file(READ ${config} text)
string(REPLACE ${TORCH} /gone text "${text}")
file(WRITE ${config} "${text}")
get_filename_component(python_folder ${PYTHON} DIRECTORY)
set(torch_config ${WORK}/elsewhere/torch/share/cmake/Torch)
file(MAKE_DIRECTORY ${WORK}/no_python)
file(WRITE ${WORK}/no_python/python3 "#!/bin/sh\nexit 1\n")
file(CHMOD ${WORK}/no_python/python3 PERMISSIONS OWNER_READ OWNER_EXECUTE)
set(without_torch ${CMAKE_COMMAND} -E env PATH=${WORK}/no_python:$ENV{PATH} ${CMAKE_COMMAND})
expect_configured("" ${without_torch} -D Torch_DIR=${torch_config})
expect_configured("" ${CMAKE_COMMAND} -E env PATH=${python_folder}:$ENV{PATH} ${CMAKE_COMMAND})
expect_configured("where fsdp was built: no LibTorch in \"/gone\" python3 on the PATH: it has no torch" ${without_torch})
file(REMOVE_RECURSE ${WORK})
