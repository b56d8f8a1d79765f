"""Watches the health of the server and prints each change, until the server closes the stream."""

import sys

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

stub = health_pb2_grpc.HealthStub(grpc.insecure_channel(sys.argv[1]))
try:
    for answer in stub.Watch(health_pb2.HealthCheckRequest(service="")):
        print(health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status), flush=True)
except grpc.RpcError:
    pass
print("closed")
