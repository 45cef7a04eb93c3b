// Package python builds the Python environments that tasks ask for, with uv.
//
// The name of an environment is the hash of everything that determines it: the requirements with the files that they include, the
// packages, the interpreter and the platform. Tasks with equal hashes share it. It is built once, in a temporary folder, then renamed
// to its path. A marker file shows that it is finished. It is checked before its first use after a start of the worker, and from
// time to time; a broken one is built again. Environments that were not used for a month are removed.
//
// The output of uv goes to the log of the task that started the build. uv sees the worker's settings of package indexes, proxies
// and certificates; the task does not.
package python
