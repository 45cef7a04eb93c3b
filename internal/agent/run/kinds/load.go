package kinds

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/kind"
)

// maxOwn is how many kinds of its own a worker may have.
const maxOwn = 200

// Own is a kind of the worker's owner.
type Own struct {
	*kind.Kind

	Dir string // its folder, absolute
}

// Load reads the definitions in the folders of dir, by name. What is wrong with one is in errs, and it is left out;
// that there is no dir is right.
func Load(dir string) (own []Own, errs []error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, []error{muster.Errorf(muster.Invalid, "the folder of kinds cannot be found: %w", err)}
	}
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, []error{muster.Errorf(muster.Invalid, "the folder of kinds cannot be read: %w", err)}
	}
	places := map[string]string{}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if info, err := os.Stat(path); err != nil || !info.IsDir() || e.Name()[0] == '.' {
			continue // such as a README
		}
		k, err := read(path)
		switch {
		case err != nil:
			errs = append(errs, err)
		case kind.IsReserved(k.Name):
			errs = append(errs, muster.Errorf(muster.Invalid, "%s: the kind or operation %s comes with Muster: choose another name", path, k.Name))
		case places[k.Name] != "":
			errs = append(errs, muster.Errorf(muster.Invalid, "%s: %s has a kind %s, too: choose another name", path, places[k.Name], k.Name))
		case len(own) == maxOwn:
			return own, append(errs, muster.Errorf(muster.Invalid, "%s: a worker has at most %d kinds of its own", path, maxOwn))
		default:
			places[k.Name] = path
			own = append(own, Own{k, path})
		}
	}
	return fit(own, errs)
}

// read reads one, which stays in its folder.
func read(dir string) (*kind.Kind, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, muster.Errorf(muster.Invalid, "%s cannot be read: %w", dir, err)
	}
	defer func() { _ = root.Close() }() // holds nothing that could be lost
	return kind.Parse(root.FS(), dir)
}

// fit leaves out the last ones if they are more than the server is told of.
func fit(own []Own, errs []error) ([]Own, []error) {
	for len(own) > 0 {
		_, err := kind.EncodeList(Kinds(own))
		if err == nil {
			break
		}
		last := own[len(own)-1]
		errs = append(errs, muster.Errorf(muster.TooLarge, "%s: the kind %s is left out: %w", last.Dir, last.Name, err))
		own = own[:len(own)-1]
	}
	return own, errs
}

// Kinds are the definitions alone.
func Kinds(own []Own) []*kind.Kind {
	list := make([]*kind.Kind, 0, len(own))
	for _, o := range own {
		list = append(list, o.Kind)
	}
	return slices.Clip(list)
}
