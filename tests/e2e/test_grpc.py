"""Any gRPC client can look around: health, reflection, and a call made from what reflection tells."""

from __future__ import annotations

import grpc
from google.protobuf import json_format, message_factory
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
from harness import Cluster


def test_health_and_reflection(cluster: Cluster) -> None:
    with grpc.insecure_channel(cluster.address) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        for service in ("", "imgd.v1.JobService"):
            answer = health.Check(health_pb2.HealthCheckRequest(service=service), timeout=5)
            assert answer.status == health_pb2.HealthCheckResponse.SERVING

        database = ProtoReflectionDescriptorDatabase(channel)
        services = set(database.get_services())
        assert DescriptorPool(database).FindServiceByName("grpc.health.v1.Health").FindMethodByName("Check")
        assert {"imgd.v1.JobService", "imgd.v1.NodeService", "imgd.v1.AgentService"} <= services

        method = DescriptorPool(database).FindServiceByName("imgd.v1.NodeService").FindMethodByName("ListNodes")
        request = message_factory.GetMessageClass(method.input_type)
        response = message_factory.GetMessageClass(method.output_type)
        call = channel.unary_unary("/imgd.v1.NodeService/ListNodes", request_serializer=request.SerializeToString,
                                   response_deserializer=response.FromString)  # fmt: skip
        nodes = json_format.MessageToDict(call(request(), timeout=5))["nodes"]
        assert [n["name"] for n in nodes] == ["a", "b"]
