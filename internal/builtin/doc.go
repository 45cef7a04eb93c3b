// Package do carries out the kinds that need no Python: the program that their tasks execute is muster itself, as
// `muster do KIND`, a command that is not among the others, so that it starts at once.
//
//	echo     gives the input back
//	api      HTTP calls, with limits
//	compute  the stage's command, as often as declared
//	test     pytest, or the stage's command, whose JUnit files are read
//
// It is a task as any other: it reads $MUSTER_INPUT, reports to $MUSTER_EVENTS, leaves its result, artifacts and failure.json in
// $MUSTER_OUT, and ends in order at SIGTERM. The words of the stage's own command follow KIND. $MUSTER_ALLOW_PRIVATE=1, which
// only the worker sets, says that calls may go to private addresses and by the proxy of the environment.
package builtin
