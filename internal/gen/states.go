package main

import (
	"fmt"
	"strings"

	"github.com/muster-dev/muster"
)

// statesPage returns a diagram of the task states, from the table of legal transitions.
func statesPage() string {
	var b strings.Builder
	b.WriteString("# Task states\n\nGenerated from `state.go` by `make gen`; do not edit. Transitions from a final state are retries by a user.\n\n")
	b.WriteString("```mermaid\nstateDiagram-v2\n")
	for _, from := range muster.TaskStates {
		if from.Final() && from != muster.Succeeded {
			continue
		}
		for _, to := range muster.TaskStates {
			if from.CanBecome(to) {
				fmt.Fprintf(&b, "    %s --> %s\n", from, to)
			}
		}
	}
	b.WriteString("    succeeded --> [*]\n```\n\n| from | meaning | to |\n|---|---|---|\n")
	for _, from := range muster.TaskStates {
		var to []string
		for _, next := range muster.TaskStates {
			if from.CanBecome(next) {
				to = append(to, next.String())
			}
		}
		fmt.Fprintf(&b, "| %s | %s | %s |\n", from, from.Meaning(), strings.Join(to, ", "))
	}
	return b.String()
}
