package muster

import (
	"strings"
	"unicode"
)

// LooksLikePython reports whether a script without a #! line is a Python program, and no shell script, by its first statement: an import, a
// function, a class, a call of print or the check of __name__. Comments, docstrings and assignments with spaces around = may precede it. A
// program that begins otherwise is not recognised.
func LooksLikePython(text string) bool {
	quote := "" // of the docstring that the line is in
	for line := range strings.Lines(text) {
		line = strings.TrimRightFunc(line, unicode.IsSpace)
		switch {
		case quote != "":
			if strings.Contains(line, quote) {
				quote = ""
			}
		case line == "" || line[0] == '#':
		case strings.HasPrefix(line, `"""`) || strings.HasPrefix(line, "'''"):
			if quote = line[:3]; strings.Contains(line[3:], quote) {
				quote = ""
			}
		case isAssignment(line):
		default:
			return isPythonStatement(line)
		}
	}
	return false
}

// isAssignment reports whether a line is one such as x = 1, on which a shell would run x.
func isAssignment(line string) bool {
	name, value, ok := strings.Cut(line, " = ")
	return ok && isPythonName(name) && value != ""
}

func isPythonStatement(line string) bool {
	first, rest, _ := strings.Cut(line, " ")
	rest = strings.TrimSpace(rest)
	switch first {
	case "import":
		return isImport(rest)
	case "from":
		module, names, ok := strings.Cut(rest, " import ")
		return ok && isPythonName(strings.TrimLeft(module, ".")+"_") && names != ""
	case "def", "class", "async":
		if first == "async" {
			def, name, _ := strings.Cut(rest, " ")
			if rest = name; def != "def" {
				return false
			}
		}
		name, _, signature := strings.Cut(rest, "(")
		if !signature && first == "class" {
			name, _, signature = strings.Cut(rest, ":")
		}
		return signature && isPythonName(name)
	case "if":
		return strings.HasPrefix(rest, "__name__ == ")
	}
	arguments, isPrint := strings.CutPrefix(line, "print(")
	return isPrint && !strings.HasPrefix(arguments, ")") // print() defines a function of a shell
}

// isImport reports whether the rest of a line that begins with import names modules. The program import of ImageMagick takes options and files.
func isImport(rest string) bool {
	rest, _, _ = strings.Cut(rest, "#")
	for module := range strings.SplitSeq(rest, ",") {
		name, alias, _ := strings.Cut(strings.TrimSpace(module), " as ")
		if !isPythonName(name) || alias != "" && !isPythonName(strings.TrimSpace(alias)) {
			return false
		}
		if i := strings.LastIndexByte(name, '.'); i >= 0 && strings.Contains(" bmp gif jpeg jpg miff pdf png ppm ps svg tif tiff webp xwd ", " "+strings.ToLower(name[i+1:])+" ") {
			return false
		}
	}
	return true
}

// isPythonName reports whether s is a name of Python, or several with dots.
func isPythonName(s string) bool {
	for name := range strings.SplitSeq(s, ".") {
		if name == "" || name[0] >= '0' && name[0] <= '9' {
			return false
		}
		for _, c := range name {
			if c != '_' && !unicode.IsLetter(c) && !unicode.IsDigit(c) {
				return false
			}
		}
	}
	return true
}
