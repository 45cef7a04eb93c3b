// Package ml runs the AI kinds end to end: a server, a worker and real libraries on small data. By default
// the worker runs them with the interpreter of the system and what Debian packages for it; with
// MUSTER_TEST_ML=1 (make test-ml) there are also tests with the runtimes as their locks say.
package ml
