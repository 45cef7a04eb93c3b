// Package dag resolves the dependencies between the stages of a job: references ${…}
// to results and artifacts, and the input files of tasks. It is pure.
//
// # References
//
// A reference is written between ${ and }:
//
//	${train.result}             the stage's result, as compact JSON
//	${train.result.a.0.b}       a part of it: members by name, list items by number
//	${train.3.result.loss}      of an array's element 3, or of a matrix's element at position 3
//	${train.*.result.loss}      a list of the values of all elements that have succeeded, at most 10,000
//	${train.exit_code}          the exit code of its process
//	${train.artifact("m.pt").url}   of the artifact m.pt; also .sha256 and .size
//	${train.artifacts.m.pt.url}     the same
//	${index}                    this element's number; 0 for a plain task
//	${matrix.lr}                this element's value of the axis lr
//
// The fields run, script.args, image, env (values), input (strings at any depth), outputs
// and where.tags may have references; where.tags has no ${index} and ${matrix…}, because
// it is the same for all elements. The text of a script, its URL and all other fields are
// not changed.
//
// Any other text that begins with ${ is not changed either, so that a shell's ${HOME}
// works. Shell variables have no dots in their names, so they cannot be mistaken for a
// reference to a stage. To write a literal ${ that would be a reference, double the
// dollar: $${index}. (In detail: in a run of dollars before a brace each pair stands for
// one dollar, and a remaining single one opens a reference.)
//
// A string of input that consists of one reference becomes a JSON value of the referenced
// type; matrix values that are numbers, true or false become such. Everywhere else strings
// are inserted as they are, and other values as compact JSON.
//
// # Two steps
//
// Resolve inserts the results of other stages, once for a whole stage when it becomes
// ready. Bind inserts index and matrix values, and the URLs of artifacts, for one element when it is assigned.
// Resolve escapes what it inserts, so that the output of one task cannot inject
// references into the next one.
package dag
