package specvalidate

import (
	"fmt"
	"io/fs"
	"path"
	"strings"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/lazyregexp"
)

// extraPattern matches names of extras and dependency groups.
var extraPattern = lazyregexp.New(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,98}[A-Za-z0-9])?$`)

// python checks the Python environment of a stage.
func (v *validator) python(t *muster.TaskSpec) {
	p := t.Python
	if p.Project == "" && p.Requirements == "" && len(p.Packages) == 0 && p.Version == "" {
		v.add("python", "", "python is empty: set project, requirements, packages or version")
	}
	v.pythonProject(t)
	if p.Requirements != "" {
		v.relativePath("python.requirements", p.Requirements)
	}
	v.count("python.packages", len(p.Packages))
	for k, name := range p.Packages {
		at := fmt.Sprintf("python.packages[%d]", k)
		v.text(at, name, 1000)
		first := strings.TrimSpace(name)
		if first == "" || first[0] == '-' {
			v.add(at, "", "%q is not a package: use a name, such as numpy or \"numpy>=2\"", muster.Truncate(name))
		}
		switch file, _, _ := strings.Cut(first, "["); {
		case !muster.IsLocalPackage(first):
		case !fs.ValidPath(path.Clean(file)):
			v.add(at, "", "%q is not in the task's files: use a path such as ./lib or ./wheels/lib-1.0-py3-none-any.whl", muster.Truncate(name))
		case t.Files == "":
			v.add(at, "write files: the folder that contains it", "the stage has no files, of which %s would be one", muster.Truncate(first))
		}
	}
	if p.Version != "" && !versionPattern.Get().MatchString(p.Version) {
		v.add("python.version", "", "%q is not a version: use one such as \"3.12\"", muster.Truncate(p.Version))
	}
}

func (v *validator) pythonProject(t *muster.TaskSpec) {
	p := t.Python
	switch {
	case p.Project == "" && len(p.Extras) > 0:
		v.add("python.extras", "write project: the folder with pyproject.toml, or numpy[extra] in packages", "extras need a project")
	case p.Project == "" && len(p.Groups) > 0:
		v.add("python.groups", "write project: the folder with pyproject.toml", "groups need a project")
	case p.Project != "" && t.Files == "":
		v.add("python.project", "write files: the folder that contains it, such as files: .", "the stage has no files to install")
	case p.Project != "" && p.Project != ".":
		v.relativePath("python.project", p.Project)
	}
	v.extras("python.extras", p.Extras)
	v.extras("python.groups", p.Groups)
}

func (v *validator) extras(at string, names []string) {
	v.count(at, len(names))
	for k, name := range names {
		if !extraPattern.Get().MatchString(name) {
			v.add(fmt.Sprintf("%s[%d]", at, k), "", "%q is not a name: use letters, digits, ., _ and -, as in pyproject.toml", muster.Truncate(name))
		}
	}
}
