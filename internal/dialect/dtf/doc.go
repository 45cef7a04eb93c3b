// Package dtf speaks the wire of the IPFS Accelerate Distributed Testing Framework (DTF).
package dtf
