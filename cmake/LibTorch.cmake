# Imported targets over the PyTorch wheel, without find_package(Torch): that one stops without a CUDA toolkit and links CUDA into everything.
#
#   libtorch::cpu    headers, torch_cpu, c10. What all programs link.
#   libtorch::cuda   in addition torch_cuda, c10_cuda. Only for the CUDA library that GPU programs load.
#
# FSDP_CTS_TORCH_DIR names the `torch` package folder; ci/setup prints it. Default: the package of FSDP_CTS_PYTHON.
set(FSDP_CTS_PYTHON "$ENV{FSDP_CTS_PYTHON}" CACHE FILEPATH "Python interpreter that has torch 2.11.0")
set(FSDP_CTS_TORCH_DIR "" CACHE PATH "The torch package folder of the wheel")

if(NOT FSDP_CTS_PYTHON)
  set(default_python "$ENV{HOME}/.cache/fsdp-cts/torch-2.11.0/bin/python")
  if(EXISTS ${default_python})
    set(FSDP_CTS_PYTHON ${default_python} CACHE FILEPATH "" FORCE)
  else()
    find_package(Python3 COMPONENTS Interpreter)
    set(FSDP_CTS_PYTHON ${Python3_EXECUTABLE} CACHE FILEPATH "" FORCE)
  endif()
endif()
if(NOT FSDP_CTS_TORCH_DIR)
  execute_process(
    COMMAND ${FSDP_CTS_PYTHON} -c "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0])"
    OUTPUT_VARIABLE torch_dir OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE result)
  if(result)
    message(FATAL_ERROR "No torch package found with ${FSDP_CTS_PYTHON}. Run ci/setup, or set FSDP_CTS_PYTHON to a Python that has torch 2.11.0.")
  endif()
  set(FSDP_CTS_TORCH_DIR ${torch_dir} CACHE PATH "" FORCE)
endif()

file(STRINGS ${FSDP_CTS_TORCH_DIR}/include/torch/headeronly/version.h torch_minor REGEX "TORCH_VERSION_MINOR 11$")
if(NOT torch_minor)
  message(FATAL_ERROR "fsdp-cts is built against LibTorch 2.11; ${FSDP_CTS_TORCH_DIR} has another version. Run ci/setup.")
endif()

# For modules of Python: empty where the Python that has torch has no headers.
execute_process(
  COMMAND ${FSDP_CTS_PYTHON} -c "import sysconfig; print(sysconfig.get_paths()['include'])"
  OUTPUT_VARIABLE FSDP_CTS_PYTHON_INCLUDE_DIR OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
if(NOT EXISTS "${FSDP_CTS_PYTHON_INCLUDE_DIR}/Python.h" OR NOT EXISTS ${FSDP_CTS_TORCH_DIR}/lib/libtorch_python.so)
  set(FSDP_CTS_PYTHON_INCLUDE_DIR "")
endif()

# What is built for one version of PyTorch says so in its name.
file(STRINGS ${FSDP_CTS_TORCH_DIR}/include/torch/headeronly/version.h torch_numbers REGEX "define TORCH_VERSION_(MAJOR|MINOR) ")
list(TRANSFORM torch_numbers REPLACE "[^0-9]" "")
list(JOIN torch_numbers "." FSDP_BUILT_FOR_TORCH)

set(fsdp_torch_dir ${FSDP_CTS_TORCH_DIR})
include(${CMAKE_SOURCE_DIR}/impl/fsdp/fsdp-libtorch.cmake)

# One precompiled header for everything that includes LibTorch: 26 s once instead of 8 s in every file (measured on 2 cores).
# Not file(WRITE): that would touch it with every configuration.
file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/libtorch_pch.cpp CONTENT "// Owner of the shared precompiled header.\n")
add_library(libtorch_pch OBJECT ${CMAKE_BINARY_DIR}/libtorch_pch.cpp)
target_link_libraries(libtorch_pch PUBLIC libtorch::cpu)
target_include_directories(libtorch_pch PUBLIC ${CMAKE_SOURCE_DIR})
target_precompile_headers(libtorch_pch PRIVATE
  <torch/nn/module.h> <torch/csrc/autograd/custom_function.h> <torch/csrc/autograd/engine.h>
  <torch/csrc/distributed/c10d/ProcessGroup.hpp> <nlohmann/json.hpp>)
fsdp_cts_warnings(libtorch_pch)

# Every target that includes LibTorch calls this instead of linking libtorch::cpu by hand.
function(fsdp_cts_links_libtorch target)
  target_link_libraries(${target} PUBLIC libtorch::cpu)
  target_precompile_headers(${target} REUSE_FROM libtorch_pch)
  # Programs get -fPIE by default, and a precompiled header made with -fPIC is not for them.
  target_compile_options(${target} PRIVATE -fPIC)
  fsdp_cts_warnings(${target})
endfunction()
