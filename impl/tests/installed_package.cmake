# Installs the library, builds the outside project against it and trains on two ranks. Run with
#   cmake -D BUILD=<build folder> -D WORK=<scratch folder> -P installed_package.cmake
function(run)
  execute_process(COMMAND ${ARGV} RESULT_VARIABLE result)
  if(NOT result EQUAL 0)
    string(REPLACE ";" " " text "${ARGV}")
    message(FATAL_ERROR "failed with ${result}: ${text}")
  endif()
endfunction()

file(REMOVE_RECURSE ${WORK})
run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${WORK}/prefix)
run(${CMAKE_COMMAND} -S ${CMAKE_CURRENT_LIST_DIR}/outside -B ${WORK}/build -D CMAKE_PREFIX_PATH=${WORK}/prefix
  -D SAMPLE=${CMAKE_CURRENT_LIST_DIR}/../samples/train.cpp)
run(${CMAKE_COMMAND} --build ${WORK}/build)
run(${WORK}/build/train)
file(REMOVE_RECURSE ${WORK})
