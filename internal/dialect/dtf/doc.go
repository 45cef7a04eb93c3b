// Package dtf implements the protocol of the IPFS Accelerate Distributed Testing Framework (DTF): the gateway is a coordinator for
// DTF's workers and clients, and the bridge is a worker of DTF's coordinators.
package dtf
