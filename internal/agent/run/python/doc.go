// Package python makes the Python environments that tasks ask for, with uv.
//
// An environment is named by the hash of everything that determines it: the
// requirements with the files that they include, the packages, the interpreter
// and the platform. Tasks that ask for the same thing share it. It is built once,
// under a lock, in a folder beside, and moved to its place whole; a finished one
// has a marker, and is looked at before it is used for the first time in a
// worker's life. One that is broken is built again. Environments that nobody used
// for a month are removed.
//
// What uv prints goes to the log of the task that the build was started for. uv
// sees the worker's settings of package indexes, proxies and certificates; the
// task does not.
package python
