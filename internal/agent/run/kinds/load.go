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

// maxOwnerKinds is how many kinds of its own a worker may have.
const maxOwnerKinds = 200

// OwnerKind is a kind of the worker's owner.
type OwnerKind struct {
	*kind.Kind

	Dir string // its folder, absolute
}

// Load reads the definitions in the folders of dir, by name. What is wrong with one is in errs, and it is left out;
// that there is no dir is right.
func Load(dir string) (ownerKinds []OwnerKind, errs []error) {
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
	dirs := map[string]string{}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if info, err := os.Stat(path); err != nil || !info.IsDir() || e.Name()[0] == '.' {
			continue // such as a README
		}
		k, err := parseDir(path)
		switch {
		case err != nil:
			errs = append(errs, err)
		case kind.IsReserved(k.Name):
			errs = append(errs, muster.Errorf(muster.Invalid, "%s: the kind or operation %s comes with Muster: choose another name", path, k.Name))
		case dirs[k.Name] != "":
			errs = append(errs, muster.Errorf(muster.Invalid, "%s: %s has a kind %s, too: choose another name", path, dirs[k.Name], k.Name))
		case len(ownerKinds) == maxOwnerKinds:
			return ownerKinds, append(errs, muster.Errorf(muster.Invalid, "%s: a worker has at most %d kinds of its own", path, maxOwnerKinds))
		default:
			dirs[k.Name] = path
			ownerKinds = append(ownerKinds, OwnerKind{k, path})
		}
	}
	return trimToSizeLimit(ownerKinds, errs)
}

// parseDir reads one, which stays in its folder.
func parseDir(dir string) (*kind.Kind, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, muster.Errorf(muster.Invalid, "%s cannot be read: %w", dir, err)
	}
	defer func() { _ = root.Close() }() // holds nothing that could be lost
	return kind.Parse(root.FS(), dir)
}

// trimToSizeLimit leaves out the last ones if they are more than the server is told of.
func trimToSizeLimit(ownerKinds []OwnerKind, errs []error) ([]OwnerKind, []error) {
	for len(ownerKinds) > 0 {
		_, err := kind.EncodeList(Definitions(ownerKinds))
		if err == nil {
			break
		}
		last := ownerKinds[len(ownerKinds)-1]
		errs = append(errs, muster.Errorf(muster.TooLarge, "%s: the kind %s is left out: %w", last.Dir, last.Name, err))
		ownerKinds = ownerKinds[:len(ownerKinds)-1]
	}
	return ownerKinds, errs
}

// Definitions are the definitions alone.
func Definitions(ownerKinds []OwnerKind) []*kind.Kind {
	list := make([]*kind.Kind, 0, len(ownerKinds))
	for _, o := range ownerKinds {
		list = append(list, o.Kind)
	}
	return slices.Clip(list)
}
