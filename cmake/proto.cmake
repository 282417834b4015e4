# imgd_proto: messages only. imgd_proto_grpc: services too. Nothing else in the tree is generated.
find_program(GRPC_CPP_PLUGIN grpc_cpp_plugin REQUIRED)

# Generates C++ for the named .proto files below proto/ and sets OUT_SOURCES (and OUT_GRPC for those with services).
function(imgd_generate_proto out_messages out_services)
  cmake_parse_arguments(ARG "" "" "MESSAGES;SERVICES" ${ARGN})
  set(messages)
  set(services)
  set(root "${PROJECT_BINARY_DIR}/proto")
  file(MAKE_DIRECTORY "${root}")
  foreach(file IN LISTS ARG_MESSAGES ARG_SERVICES)
    string(REGEX REPLACE "\\.proto$" "" stem "${file}")
    set(outputs "${root}/${stem}.pb.cc" "${root}/${stem}.pb.h")
    set(plugin)
    list(APPEND messages "${root}/${stem}.pb.cc")
    if(file IN_LIST ARG_SERVICES)
      list(APPEND outputs "${root}/${stem}.grpc.pb.cc" "${root}/${stem}.grpc.pb.h")
      list(APPEND services "${root}/${stem}.grpc.pb.cc")
      set(plugin --grpc_out=${root} --plugin=protoc-gen-grpc=${GRPC_CPP_PLUGIN})
    endif()
    file(GLOB all CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/proto/imgd/v1/*.proto")
    add_custom_command(
      OUTPUT ${outputs}
      COMMAND protobuf::protoc -I "${PROJECT_SOURCE_DIR}/proto" --cpp_out=${root} ${plugin} ${file}
      DEPENDS ${all}
      VERBATIM)
  endforeach()
  set(${out_messages} ${messages} PARENT_SCOPE)
  set(${out_services} ${services} PARENT_SCOPE)
endfunction()
