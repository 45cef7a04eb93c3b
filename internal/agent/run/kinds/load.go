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

// maxOwnerKinds is the most kinds that the owner of a worker may define.
const maxOwnerKinds = 200

// OwnerKind is a kind that the worker's owner defined.
type OwnerKind struct {
	*kind.Kind

	Dir string // its folder, absolute
}

// Load reads the definitions in the subfolders of dir, sorted by name. It skips invalid ones and returns an error for each. A missing
// dir is not an error.
func Load(dir string) (ownerKinds []OwnerKind, errs []error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, []error{muster.Errorf(muster.Invalid, "find the folder of kinds: %w", err)}
	}
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, []error{muster.Errorf(muster.Invalid, "read the folder of kinds: %w", err)}
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
			errs = append(errs, muster.Errorf(muster.Invalid, "%s: %s is a kind or operation of Muster: choose another name", path, k.Name))
		case dirs[k.Name] != "":
			errs = append(errs, muster.Errorf(muster.Invalid, "%s: %s also defines kind %s: choose another name", path, dirs[k.Name], k.Name))
		case len(ownerKinds) == maxOwnerKinds:
			return ownerKinds, append(errs, muster.Errorf(muster.Invalid, "%s: a worker can have at most %d kinds of its owner", path, maxOwnerKinds))
		default:
			dirs[k.Name] = path
			ownerKinds = append(ownerKinds, OwnerKind{k, path})
		}
	}
	return trimToSizeLimit(ownerKinds, errs)
}

// parseDir reads one definition, without following links out of dir.
func parseDir(dir string) (*kind.Kind, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, muster.Errorf(muster.Invalid, "read %s: %w", dir, err)
	}
	defer func() { _ = root.Close() }()
	return kind.Parse(root.FS(), dir)
}

// trimToSizeLimit drops the last kinds until the list fits into a message to the server.
func trimToSizeLimit(ownerKinds []OwnerKind, errs []error) ([]OwnerKind, []error) {
	for len(ownerKinds) > 0 {
		_, err := kind.EncodeList(Definitions(ownerKinds))
		if err == nil {
			break
		}
		last := ownerKinds[len(ownerKinds)-1]
		errs = append(errs, muster.Errorf(muster.TooLarge, "%s: skip kind %s: %w", last.Dir, last.Name, err))
		ownerKinds = ownerKinds[:len(ownerKinds)-1]
	}
	return ownerKinds, errs
}

// Definitions returns the definitions without their folders.
func Definitions(ownerKinds []OwnerKind) []*kind.Kind {
	list := make([]*kind.Kind, 0, len(ownerKinds))
	for _, o := range ownerKinds {
		list = append(list, o.Kind)
	}
	return slices.Clip(list)
}
