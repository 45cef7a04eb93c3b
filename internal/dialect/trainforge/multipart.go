package trainforge

import (
	"errors"
	"io"
	"mime/multipart"
	"net/http"
	"os"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/dialect/lenient"
)

// upload is what a multipart body brought.
type upload struct {
	fields map[string]string // the short ones
	file   *os.File          // the long one, at its beginning; nil if it was not there
	size   int64
}

func (u *upload) close() {
	if u.file != nil {
		_ = u.file.Close()
		_ = os.Remove(u.file.Name())
	}
}

// receiveUpload reads a multipart body with a file of at most maxBytes in the field named file, which is written into dir, and short fields. Other files
// are read and dropped. Its errors are Invalid and TooLarge.
func receiveUpload(r *http.Request, dir, file string, maxBytes int64) (_ *upload, err error) {
	form, err := r.MultipartReader()
	if err != nil {
		return nil, muster.Errorf(muster.Invalid, "the body is not multipart/form-data: %w", err)
	}
	u := &upload{fields: map[string]string{}}
	defer func() {
		if err != nil {
			u.close()
		}
	}()
	remaining := maxBytes + 2*maxConfig // of the whole body
	for n := 0; ; n++ {
		p, err := form.NextPart()
		switch {
		case errors.Is(err, io.EOF):
			return u, nil
		case err != nil:
			return nil, muster.Errorf(muster.Invalid, "the body broke off or is not multipart/form-data: %w", err)
		case n >= 100:
			return nil, muster.Errorf(muster.Invalid, "the body has more than 100 parts")
		}
		var size int64
		switch {
		case p.FormName() == file && u.file == nil:
			size, err = u.saveFile(p, dir, maxBytes)
		case p.FileName() == "" || p.FormName() == "config":
			size, err = u.field(p)
		default:
			size, err = io.Copy(io.Discard, io.LimitReader(p, remaining+1))
		}
		if err != nil {
			return nil, err
		}
		if remaining -= size; remaining < 0 {
			return nil, muster.Errorf(muster.TooLarge, "the body has more than %s", muster.Size(maxBytes))
		}
	}
}

func (u *upload) field(p *multipart.Part) (int64, error) {
	b, err := io.ReadAll(io.LimitReader(p, maxConfig+1))
	if err != nil {
		return 0, muster.Errorf(muster.Invalid, "the body broke off: %w", err)
	}
	if len(b) > maxConfig {
		return 0, muster.Errorf(muster.TooLarge, "the field %s has more than %s", lenient.Text(p.FormName(), 40), muster.Size(maxConfig))
	}
	u.fields[p.FormName()] = string(b)
	return int64(len(b)), nil
}

func (u *upload) saveFile(p *multipart.Part, dir string, maxBytes int64) (int64, error) {
	f, err := os.CreateTemp(dir, "upload-*")
	if err != nil {
		return 0, err
	}
	u.file = f
	if u.size, err = io.Copy(f, io.LimitReader(p, maxBytes+1)); err != nil {
		return 0, muster.Errorf(muster.Invalid, "the upload broke off: %w", err)
	}
	if u.size > maxBytes {
		return 0, muster.Errorf(muster.TooLarge, "the field %s has more than %s", lenient.Text(p.FormName(), 40), muster.Size(maxBytes))
	}
	_, err = f.Seek(0, io.SeekStart)
	return u.size, err
}
