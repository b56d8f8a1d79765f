//! Redis and Valkey as the store of a fleet: standalone, behind Sentinel, or as a Cluster.
