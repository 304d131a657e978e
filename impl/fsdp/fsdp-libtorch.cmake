# Imported targets over the LibTorch in fsdp_torch_dir, the wheel's `torch` folder. Read by this project's build and, installed beside
# fsdp-config.cmake, by find_package(fsdp): nothing else of the package knows where LibTorch is.
if(TARGET libtorch::cpu)
  return()
endif()
add_library(libtorch::cpu INTERFACE IMPORTED GLOBAL)
target_include_directories(libtorch::cpu SYSTEM INTERFACE
  ${fsdp_torch_dir}/include ${fsdp_torch_dir}/include/torch/csrc/api/include)
target_compile_definitions(libtorch::cpu INTERFACE _GLIBCXX_USE_CXX11_ABI=1 USE_DISTRIBUTED USE_C10D_GLOO)
# torch_cpu registers its operators from static initialisers: it must be loaded even where no symbol of it is named.
target_link_options(libtorch::cpu INTERFACE -Wl,--no-as-needed LINKER:-rpath,${fsdp_torch_dir}/lib)
target_link_libraries(libtorch::cpu INTERFACE ${fsdp_torch_dir}/lib/libtorch_cpu.so ${fsdp_torch_dir}/lib/libc10.so)

if(EXISTS ${fsdp_torch_dir}/lib/libtorch_cuda.so)
  add_library(libtorch::cuda INTERFACE IMPORTED GLOBAL)
  target_link_libraries(libtorch::cuda INTERFACE libtorch::cpu
    ${fsdp_torch_dir}/lib/libtorch_cuda.so ${fsdp_torch_dir}/lib/libc10_cuda.so)
endif()
# The NCCL that the wheel uses, else the system's.
find_library(NCCL_LIBRARY NAMES nccl libnccl.so.2 HINTS ${fsdp_torch_dir}/../nvidia/nccl/lib)
if(NCCL_LIBRARY)
  get_filename_component(fsdp_nccl_folder ${NCCL_LIBRARY} DIRECTORY)
  add_library(libtorch::nccl INTERFACE IMPORTED GLOBAL)
  target_link_libraries(libtorch::nccl INTERFACE ${NCCL_LIBRARY})
  target_link_options(libtorch::nccl INTERFACE LINKER:-rpath,${fsdp_nccl_folder})
endif()
