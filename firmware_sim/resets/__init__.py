"""200 nodes on a real mosquitto whose connections break: nothing lost, nothing twice."""
