# LibTorch from the wheel in ${IMGD_DEPS_DIR}/torch, as the imported target imgd_torch; where the wheel has CUDA and NCCL
# (IMGD_CUDA), imgd_torch_cuda has them too. The wheel's own CMake package is not used: it probes for a GPU and a system toolkit.
#
# No kernel is compiled here: no source is CUDA's own, all that runs on a GPU is in the wheel's libraries, NCCL and nvJPEG.
# So there are no architectures to choose: the wheel decides. CUDA 13's has 7.5 (Turing) and newer, CUDA 12's also 7.0 (Volta).

set(IMGD_TORCH_ENV "${IMGD_DEPS_DIR}/torch" CACHE PATH "Python environment that holds the torch wheel")
file(GLOB IMGD_SITE_PACKAGES "${IMGD_TORCH_ENV}/lib/python3*/site-packages")
set(IMGD_TORCH_ROOT "${IMGD_SITE_PACKAGES}/torch")
if(NOT EXISTS "${IMGD_TORCH_ROOT}/lib/libtorch_cpu.so")
  message(FATAL_ERROR "no LibTorch in ${IMGD_TORCH_ENV}: run ./run setup (or configure with -DIMGD_TRAINER=OFF)")
endif()

# The wheel ships headers of another fmt than the system's, which would win wherever both are wanted; a folder with
# nothing but the system's, put in front, settles it.
find_path(IMGD_FMT_INCLUDE fmt/format.h REQUIRED)
file(MAKE_DIRECTORY "${PROJECT_BINARY_DIR}/torch_first")
file(CREATE_LINK "${IMGD_FMT_INCLUDE}/fmt" "${PROJECT_BINARY_DIR}/torch_first/fmt" SYMBOLIC)

add_library(imgd_torch INTERFACE)
target_include_directories(imgd_torch SYSTEM INTERFACE "${PROJECT_BINARY_DIR}/torch_first"
  "${IMGD_TORCH_ROOT}/include" "${IMGD_TORCH_ROOT}/include/torch/csrc/api/include")
target_compile_definitions(imgd_torch INTERFACE USE_DISTRIBUTED USE_C10D_GLOO)
target_link_directories(imgd_torch INTERFACE "${IMGD_TORCH_ROOT}/lib")
target_link_options(imgd_torch INTERFACE "-Wl,-rpath,${IMGD_TORCH_ROOT}/lib" -Wl,--no-as-needed)
# libstdc++ before LibTorch: 2.11 exports a part of std::filesystem of its own, which crashes when called.
# Not libtorch.so, which would bring CUDA along.
target_link_libraries(imgd_torch INTERFACE stdc++ torch_cpu c10)

if(EXISTS "${IMGD_TORCH_ROOT}/lib/libtorch_cuda.so")
  set(IMGD_CUDA ON)
  # CUDA 13 has most in nvidia/cu13, CUDA 12 a folder for each part.
  file(GLOB nvidia_includes LIST_DIRECTORIES true "${IMGD_SITE_PACKAGES}/nvidia/*/include")
  file(GLOB nvidia_libraries LIST_DIRECTORIES true "${IMGD_SITE_PACKAGES}/nvidia/*/lib")
  file(GLOB cudart "${IMGD_SITE_PACKAGES}/nvidia/*/lib/libcudart.so.*")
  file(GLOB nccl "${IMGD_SITE_PACKAGES}/nvidia/*/lib/libnccl.so.*")
  file(GLOB cudnn "${IMGD_SITE_PACKAGES}/nvidia/cudnn/lib/libcudnn.so.*")
  target_include_directories(imgd_torch SYSTEM INTERFACE ${nvidia_includes})
  target_compile_definitions(imgd_torch INTERFACE USE_CUDA USE_C10D_NCCL IMGD_CUDA)
  target_link_directories(imgd_torch INTERFACE ${nvidia_libraries})
  add_library(imgd_torch_cuda INTERFACE)
  target_link_libraries(imgd_torch_cuda INTERFACE imgd_torch torch_cuda c10_cuda ${cudart} ${nccl} ${cudnn})
  list(JOIN nvidia_libraries ":" nvidia_rpath)
  target_link_options(imgd_torch INTERFACE "-Wl,-rpath,${nvidia_rpath}" "-Wl,-rpath-link,${nvidia_rpath}")
else()
  set(IMGD_CUDA OFF)
endif()
message(STATUS "LibTorch: ${IMGD_TORCH_ROOT} (CUDA ${IMGD_CUDA})")
