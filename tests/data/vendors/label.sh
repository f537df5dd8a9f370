kubectl label nodes worker-1 ack.node.gpu.schedule=core_mem
kubectl label nodes worker-2 ack.node.gpu.schedule-
