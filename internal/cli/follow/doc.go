// Package follow shows jobs while they go on: their output as it comes, on a
// terminal a status line below it, the question after Ctrl-C, and at the end
// the exit status that stands for how they ended.
package follow
