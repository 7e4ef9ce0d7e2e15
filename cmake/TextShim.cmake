# The Rust static library over tokenizers, minijinja and llguidance, with its generated C header.
# All presets share one cargo folder: the archive is never instrumented, so one build serves them all.
set(SHIM_DIR ${PROJECT_SOURCE_DIR}/rust/textshim)
set(SHIM_TARGET ${PROJECT_SOURCE_DIR}/build/cargo)
set(SHIM_INCLUDE ${SHIM_TARGET}/include)
set(SHIM_LIB ${SHIM_TARGET}/release/libtextshim.a)
find_program(CARGO cargo HINTS $ENV{HOME}/.cargo/bin REQUIRED)
file(GLOB SHIM_SOURCES CONFIGURE_DEPENDS ${SHIM_DIR}/src/*.rs)
file(MAKE_DIRECTORY ${SHIM_INCLUDE})
add_custom_command(
  OUTPUT ${SHIM_LIB} ${SHIM_INCLUDE}/textshim.h
  COMMAND ${CMAKE_COMMAND} -E env CARGO_TARGET_DIR=${SHIM_TARGET} TEXTSHIM_HEADER=${SHIM_INCLUDE}/textshim.h
          ${CARGO} build --release --locked --quiet
  COMMAND ${CMAKE_COMMAND} -E touch ${SHIM_INCLUDE}/textshim.h ${SHIM_LIB}
  WORKING_DIRECTORY ${SHIM_DIR}
  DEPENDS ${SHIM_SOURCES} ${SHIM_DIR}/Cargo.toml ${SHIM_DIR}/Cargo.lock ${SHIM_DIR}/build.rs ${SHIM_DIR}/cbindgen.toml
  COMMENT "building the text shim (Rust)" VERBATIM)
add_custom_target(textshim_build DEPENDS ${SHIM_LIB} ${SHIM_INCLUDE}/textshim.h)
add_library(textshim STATIC IMPORTED GLOBAL)
set_target_properties(textshim PROPERTIES IMPORTED_LOCATION ${SHIM_LIB})
target_include_directories(textshim INTERFACE ${SHIM_INCLUDE})
target_link_libraries(textshim INTERFACE Threads::Threads dl m)
add_dependencies(textshim textshim_build)
