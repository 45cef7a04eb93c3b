package run

import (
	"cmp"
	"path"
	"strconv"
	"strings"

	"github.com/muster-dev/muster"
)

// Interpreter returns the command for a script without its arguments. It uses the spec's interpreter, the #! line, the suffix of the
// name, python3 for a text that is recognisably Python, or sh.
func Interpreter(s *muster.Script, text []byte, name string) []string {
	file := "./" + name
	if len(s.Interpreter) > 0 {
		return append(append([]string(nil), s.Interpreter...), file)
	}
	if line, ok := strings.CutPrefix(firstLine(text), "#!"); ok {
		// Like the kernel: a program and at most one argument.
		prog, arg, _ := strings.Cut(strings.TrimSpace(line), " ")
		if prog != "" && strings.TrimSpace(arg) == "" {
			return []string{prog, file}
		}
		if prog != "" {
			return []string{prog, strings.TrimSpace(arg), file}
		}
	}
	extension := path.Ext(name)
	if extension == "" && muster.LooksLikePython(string(text)) {
		extension = ".py"
	}
	switch extension {
	case ".py":
		return []string{"python3", file}
	case ".bash":
		return []string{"bash", file}
	case ".js", ".mjs":
		return []string{"node", file}
	case ".rb":
		return []string{"ruby", file}
	case ".pl":
		return []string{"perl", file}
	case ".R", ".r":
		return []string{"Rscript", file}
	default:
		return []string{"/bin/sh", file}
	}
}

func firstLine(text []byte) string {
	line, _, _ := strings.Cut(string(text[:min(len(text), 512)]), "\n")
	return strings.TrimRight(line, "\r")
}

// ElementEnv returns $MUSTER_INDEX and the $MUSTER_MATRIX_… entries of an element.
func ElementEnv(spec *muster.TaskSpec, element string) (string, []string) {
	if spec.Sweep != nil {
		return trialEnv(spec, element)
	}
	if spec.Matrix == nil {
		return cmp.Or(element, "0"), nil
	}
	axes := spec.Matrix.Axes
	indices := matchElement(axes, element)
	if indices == nil {
		return "0", nil
	}
	index := 0
	var env []string
	for i, axis := range axes {
		index = index*len(axis.Values) + indices[i]
		env = append(env, "MUSTER_MATRIX_"+envName(axis.Name)+"="+axis.Values[indices[i]])
	}
	return strconv.Itoa(index), env
}

// trialEnv is ElementEnv of a random search.
func trialEnv(spec *muster.TaskSpec, element string) (string, []string) {
	trial, ok := spec.Sweep.Trial(element)
	if !ok {
		return "0", nil
	}
	var env []string
	axes := spec.Axes()
	for i, v := range spec.Combination(trial) {
		env = append(env, "MUSTER_MATRIX_"+envName(axes[i])+"="+v)
	}
	return strconv.Itoa(trial), env
}

// matchElement returns the index of each axis' value in a text such as "lr=0.1,seed=2", nil if none fits. Values may contain
// commas, so it backtracks.
func matchElement(axes []muster.Axis, element string) []int {
	if len(axes) == 0 {
		if element == "" {
			return []int{}
		}
		return nil
	}
	for i, v := range axes[0].Values {
		rest, ok := strings.CutPrefix(element, axes[0].Name+"="+v)
		if !ok {
			continue
		}
		if len(axes) > 1 {
			if rest, ok = strings.CutPrefix(rest, ","); !ok {
				continue
			}
		}
		if indices := matchElement(axes[1:], rest); indices != nil {
			return append([]int{i}, indices...)
		}
	}
	return nil
}

// envName converts the name of an axis to upper case letters, digits and underscores.
func envName(name string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z':
			return r - 'a' + 'A'
		case r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
			return r
		default:
			return '_'
		}
	}, name)
}
