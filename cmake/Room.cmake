# The floors of the house. tests/tidy reads this table too: a room may use only rooms on lower floors.
set(HEADRACE_FLOORS
  "0 base"
  "1 tensor" "1 kv_cache" "1 queueing" "1 stats" "1 json" "1 metrics" "1 net" "1 store"
  "2 kernels" "2 kv_tier" "2 text" "2 config" "2 catalog" "2 telemetry" "2 trace"
  "3 weights" "3 sampling" "3 scheduler" "3 api"
  "4 model" "4 upstream" "4 jobs"
  "5 executor" "5 quant"
  "6 engine"
  "7 gateway"
  "8 server" "8 bench" "8 eval" "8 simulate"
  "9 plan" "9 tune" "9 autoscale" "9 chat")

set(HEADRACE_ROOMS "")
foreach(line IN LISTS HEADRACE_FLOORS)
  string(REGEX MATCH "^([0-9]+) (.+)$" _ "${line}")
  set(HEADRACE_FLOOR_${CMAKE_MATCH_2} ${CMAKE_MATCH_1})
  if(EXISTS ${CMAKE_CURRENT_SOURCE_DIR}/src/${CMAKE_MATCH_2}/CMakeLists.txt)
    list(APPEND HEADRACE_ROOMS ${CMAKE_MATCH_2})
  endif()
endforeach()

# headrace_room(NAME SOURCES … DEPS rooms… LIBS libraries… TESTS files… TEST_DEPS rooms… FUZZ files…)
# One static library headrace_NAME, one test program NAME_test, one fuzz program per FUZZ file.
function(headrace_room name)
  cmake_parse_arguments(R "" "" "SOURCES;DEPS;LIBS;TESTS;TEST_DEPS;FUZZ" ${ARGN})
  foreach(dep IN LISTS R_DEPS R_TEST_DEPS)
    if(NOT HEADRACE_FLOOR_${dep} LESS HEADRACE_FLOOR_${name})
      message(FATAL_ERROR "room ${name} (floor ${HEADRACE_FLOOR_${name}}) may not use ${dep} (floor ${HEADRACE_FLOOR_${dep}})")
    endif()
  endforeach()
  set(links "")
  foreach(dep IN LISTS R_DEPS)
    list(APPEND links headrace_${dep})
  endforeach()
  if(R_SOURCES)
    add_library(headrace_${name} STATIC ${R_SOURCES})
    target_include_directories(headrace_${name} PUBLIC ${PROJECT_SOURCE_DIR}/src)
    target_link_libraries(headrace_${name} PUBLIC ${links} ${R_LIBS})
  else()
    add_library(headrace_${name} INTERFACE)
    target_include_directories(headrace_${name} INTERFACE ${PROJECT_SOURCE_DIR}/src)
    target_link_libraries(headrace_${name} INTERFACE ${links} ${R_LIBS})
  endif()
  if(HEADRACE_TESTS AND R_TESTS)
    add_executable(${name}_test ${R_TESTS})
    target_link_libraries(${name}_test PRIVATE headrace_${name} GTest::gmock GTest::gtest_main)
    target_compile_definitions(${name}_test PRIVATE HEADRACE_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
    foreach(dep IN LISTS R_TEST_DEPS)
      target_link_libraries(${name}_test PRIVATE headrace_${dep})
    endforeach()
    add_test(NAME ${name} COMMAND ${name}_test)
    set_tests_properties(${name} PROPERTIES TIMEOUT 900)
  endif()
  if(HEADRACE_FUZZ)
    foreach(file IN LISTS R_FUZZ)
      get_filename_component(stem ${file} NAME_WE)
      add_executable(${stem} ${file})
      target_link_libraries(${stem} PRIVATE headrace_${name})
      target_link_options(${stem} PRIVATE -fsanitize=fuzzer)
    endforeach()
  endif()
endfunction()
