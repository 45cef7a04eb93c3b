// Package builtin implements the kinds that need no Python: their tasks execute muster itself as `muster builtin KIND`, an internal command
// that starts without the other commands.
//
//	echo     returns the input
//	api      makes HTTP calls, with limits
//	compute  runs the stage's command a number of times
//	test     runs pytest, or the stage's command and reads its JUnit files
//
// It behaves like any other task: it reads $MUSTER_INPUT, reports progress to $MUSTER_EVENTS, writes its result, artifacts and failure.json
// to $MUSTER_OUT, and stops in order at SIGTERM. The stage's own command follows KIND. $MUSTER_ALLOW_PRIVATE=1, which only the worker
// sets, allows calls to private addresses and through the proxy of the environment; $MUSTER_SERVER_URL is the worker's server, whose signed URLs are read
// at any address.
package builtin
