package trainforge

import (
	"archive/zip"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/muster-dev/muster"
)

// limits bound what an archive may hold.
type limits struct {
	files int   // entries
	bytes int64 // of all files, unpacked
}

// The most of what a project, and of what results may unpack to. A project may be compressed to a tenth.
var (
	projectLimits = limits{files: 20_000, bytes: 10 * maxProject} //nolint:gochecknoglobals // constants
	resultLimits  = limits{files: 10_000, bytes: 4 * maxResults}  //nolint:gochecknoglobals // constants
)

// entries returns the plain files of an archive by their names, which are relative paths that stay inside. It is Invalid for an archive that has
// anything else, says that it unpacks to more than the limits, or has one name twice.
func entries(z *zip.Reader, most limits) (map[string]*zip.File, error) {
	if len(z.File) > most.files {
		return nil, muster.Errorf(muster.TooLarge, "the archive has %d entries: at most %d are taken", len(z.File), most.files)
	}
	found := make(map[string]*zip.File, len(z.File))
	folders := map[string]bool{}
	var total uint64
	for _, f := range z.File {
		if strings.HasSuffix(f.Name, "/") || f.Mode().IsDir() {
			if strings.Trim(f.Name, "./\\") == "" {
				continue
			}
			name, err := checkPath("the entry", strings.TrimRight(f.Name, "/"))
			if err != nil {
				return nil, err
			}
			folders[name] = true
			continue
		}
		name, err := checkPath("the entry", f.Name)
		if err != nil {
			return nil, err
		}
		switch {
		case f.Mode()&fs.ModeType != 0:
			return nil, muster.Errorf(muster.Invalid, "the entry %q is neither a file nor a folder", cut(f.Name, 100))
		case found[name] != nil:
			return nil, muster.Errorf(muster.Invalid, "the entry %q is there twice", cut(f.Name, 100))
		case f.Flags&1 != 0:
			return nil, muster.Errorf(muster.Invalid, "the entry %q is encrypted", cut(f.Name, 100))
		}
		found[name] = f
		total += f.UncompressedSize64
		if total > uint64(most.bytes) || f.UncompressedSize64 > uint64(most.bytes) {
			return nil, muster.Errorf(muster.TooLarge, "the archive unpacks to more than %s", muster.Size(most.bytes))
		}
	}
	for name := range found {
		for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
			folders[dir] = true
		}
	}
	for name := range found {
		if folders[name] {
			return nil, muster.Errorf(muster.Invalid, "the entry %q is a file and a folder", cut(name, 100))
		}
	}
	return found, nil
}

// openZip reads the directory of an archive.
func openZip(r io.ReaderAt, size int64) (*zip.Reader, error) {
	z, err := zip.NewReader(r, size)
	if errors.Is(err, zip.ErrInsecurePath) {
		return nil, muster.Errorf(muster.Invalid, "the archive has a path that leads out of it")
	}
	if err != nil {
		return nil, muster.Errorf(muster.Invalid, "this is no zip archive: %w", err)
	}
	return z, nil
}

// unpack writes the files of an archive into the empty folder dir. Nothing is written outside dir, and not more than the limits whatever the
// archive says of itself. After an error dir may hold a part.
func unpack(ctx context.Context, r io.ReaderAt, size int64, dir string, most limits) error {
	z, err := openZip(r, size)
	if err != nil {
		return err
	}
	found, err := entries(z, most)
	if err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	left := most.bytes
	for name, f := range found {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		if parent := path.Dir(name); parent != "." {
			if err := root.MkdirAll(filepath.FromSlash(parent), 0o755); err != nil {
				return badName(name, err)
			}
		}
		n, err := unpackFile(root, name, f, left)
		if err != nil {
			return err
		}
		left -= n
	}
	return nil
}

func badName(name string, err error) error {
	if errors.Is(err, fs.ErrExist) || errors.Is(err, fs.ErrInvalid) {
		return muster.Errorf(muster.Invalid, "the entry %q cannot be written: %w", cut(name, 100), err)
	}
	return err
}

func unpackFile(root *os.Root, name string, f *zip.File, left int64) (int64, error) {
	in, err := f.Open()
	if err != nil {
		return 0, muster.Errorf(muster.Invalid, "the entry %q cannot be read: %w", cut(name, 100), err)
	}
	defer in.Close()
	mode := fs.FileMode(0o644)
	if f.Mode()&0o100 != 0 {
		mode = 0o755
	}
	out, err := root.OpenFile(filepath.FromSlash(name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return 0, badName(name, err)
	}
	n, err := io.Copy(out, io.LimitReader(in, left+1))
	if cerr := out.Close(); err == nil && cerr != nil {
		return n, cerr
	}
	switch {
	case n > left:
		return n, muster.Errorf(muster.TooLarge, "the archive unpacks to more than it may")
	case errors.Is(err, zip.ErrChecksum), errors.Is(err, zip.ErrFormat), errors.Is(err, zip.ErrAlgorithm), errors.Is(err, io.ErrUnexpectedEOF):
		return n, muster.Errorf(muster.Invalid, "the entry %q is damaged: %w", cut(name, 100), err)
	case err != nil:
		if _, disk := errors.AsType[*fs.PathError](err); disk {
			return n, err
		}
		return n, muster.Errorf(muster.Invalid, "the entry %q is damaged: %w", cut(name, 100), err)
	}
	return n, nil
}

// packed is an archive that is written.
type packed struct {
	zip  *zip.Writer
	left int64
}

func pack(w io.Writer, most int64) *packed { return &packed{zip: zip.NewWriter(w), left: most} }

// add writes one file of known content.
func (p *packed) add(name string, content []byte) error {
	w, err := p.zip.CreateHeader(&zip.FileHeader{Name: name, Method: zip.Deflate})
	if err != nil {
		return err
	}
	p.left -= int64(len(content))
	if p.left < 0 {
		return p.full()
	}
	_, err = w.Write(content)
	return err
}

func (p *packed) full() error {
	return muster.Errorf(muster.TooLarge, "the files are more than a project of TrainForge may have")
}

// folder writes the files of dir under prefix. Links are written as what they lead to, if that is a file in dir.
func (p *packed) folder(ctx context.Context, dir, prefix string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	return fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return errors.Join(err, ctx.Err())
		}
		f, err := root.Open(filepath.FromSlash(name))
		if err != nil {
			return err
		}
		defer f.Close()
		info, err := f.Stat()
		if err != nil || !info.Mode().IsRegular() {
			return err
		}
		return p.file(prefix+name, f, info)
	})
}

func (p *packed) file(name string, r io.Reader, info fs.FileInfo) error {
	h := &zip.FileHeader{Name: name, Method: zip.Deflate}
	if info != nil {
		h.SetMode(info.Mode().Perm())
	}
	w, err := p.zip.CreateHeader(h)
	if err != nil {
		return err
	}
	n, err := io.Copy(w, io.LimitReader(r, p.left+1))
	p.left -= n
	if err == nil && p.left < 0 {
		err = p.full()
	}
	return err
}

func (p *packed) close() error { return p.zip.Close() }
