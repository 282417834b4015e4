# imgd_test(NAME SOURCES a_test.cc ... LIBRARIES ...): one GoogleTest program, which is one ctest case: to start it anew for each
# of its tests would take longer than most of them.
function(imgd_test name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LIBRARIES" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_LIBRARIES} GTest::gmock GTest::gtest_main imgd_warnings)
  # Compiled once and run for seconds: less optimised than what is tested.
  target_compile_options(${name} PRIVATE $<$<CONFIG:Release>:-O1>)
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES TIMEOUT 600)
endfunction()
