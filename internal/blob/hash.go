package blob

import "github.com/muster-dev/muster"

// CheckHash returns an Invalid error unless s is 64 lower-case hex digits.
func CheckHash(s string) error {
	ok := len(s) == 64
	for i := 0; ok && i < len(s); i++ {
		c := s[i]
		ok = c >= '0' && c <= '9' || c >= 'a' && c <= 'f'
	}
	if !ok {
		return muster.Errorf(muster.Invalid, "%.80q is not a SHA-256: write 64 lower-case hex digits", s)
	}
	return nil
}
