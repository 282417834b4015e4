# imgd_test(NAME SOURCES a_test.cc ... LIBRARIES ... [LABELS ...]): one GoogleTest program, each test a ctest case.
include(GoogleTest)

function(imgd_test name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LIBRARIES;LABELS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_LIBRARIES} GTest::gmock GTest::gtest_main imgd_warnings)
  gtest_discover_tests(${name} PROPERTIES LABELS "unit;${ARG_LABELS}" TIMEOUT 120 DISCOVERY_TIMEOUT 60)
endfunction()
