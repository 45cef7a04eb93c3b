// Package flow knows how the stages of a job depend on each other: which
// references ${…} there are, what they stand for, and which artifacts land in
// which task's folder. It is pure.
//
// # References
//
// A reference stands in a text between ${ and }:
//
//	${train.result}             the stage's result, as compact JSON
//	${train.result.a.0.b}       a part of it: members by name, list items by number
//	${train.3.result.loss}      of an array's element 3, or of a matrix' element at position 3
//	${train.exit_code}          how its process ended
//	${train.artifacts.m.pt.sha256}  of the artifact m.pt; also .size, and .url: its place on the server
//	${index}                    the own element's number; 0 for a plain task
//	${matrix.lr}                the own element's value of the axis lr
//
// They are looked for in run, script.args, image, env (the values), input (texts, at
// any depth), outputs and where.tags (not ${index} and ${matrix…}, because one
// placement holds for all elements). The text of a script, its URL and all other
// fields are left alone.
//
// Everything else that begins with ${ is left alone too, so that a shell's own
// ${HOME} survives. No shell has names with dots, so no reference to a stage can
// be meant for it. To write a literal ${ that would be a reference, double the
// dollar: in $${index} the rule is that of two dollars directly before a brace
// one is taken away. (In detail: of a run of dollars before a brace each pair
// stands for one dollar, and a single one that is left over opens a reference.)
//
// A text of input that is one reference and nothing else becomes a JSON value of
// the type that is referred to; matrix values that read as numbers, true or
// false become such. In all other places texts go in as they are, everything
// else as compact JSON.
//
// # Two steps
//
// Resolve puts in the results of other stages, once for a whole stage when it
// becomes ready. Bind puts in index and matrix values, for one element when it
// is assigned. What Resolve puts in is escaped so that Bind does not take it
// for a reference: the output of one task cannot make the next one read more
// than its spec says.
package dag
