# cmake -DSOURCE=FOLDER -DCOMMIT=TEXT -DFILE=OUT -P ask_commit.cmake: writes OUT where it changes.
if(COMMIT STREQUAL "")
  execute_process(COMMAND git -C "${SOURCE}" describe --always --dirty --abbrev=12 --exclude=*
    OUTPUT_VARIABLE COMMIT OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
set(text "#include \"common/commit.h\"\nnamespace imgd {\nconst char* Commit() { return \"${COMMIT}\"; }\n}\n")
set(old "")
if(EXISTS "${FILE}")
  file(READ "${FILE}" old)
endif()
if(NOT old STREQUAL text)
  file(WRITE "${FILE}" "${text}")
endif()
