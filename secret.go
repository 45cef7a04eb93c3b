package muster

import "encoding/json"

// Limits of secrets.
const (
	MinSecretSize = 8        // bytes of a value, without white space around it: a shorter one is in too many words to be removed from logs
	MaxSecretSize = 64 << 10 // bytes of a value
	MaxSecrets    = 100      // secrets of a project

	MaxTaskSecrets = 20 // of a task, as variables and files
)

// Secret is a secret of the project that a task is given as a variable or as a file, or with which its image is pulled. In JSON it is an
// object, or a string: Name, for the variable of that name.
type Secret struct { //nolint:recvcheck // UnmarshalJSON changes it
	Name string `json:"name"`
	Env  string `json:"env,omitempty"`  // variable; default: Name, unless File or Registry is set
	File string `json:"file,omitempty"` // path in the task's folder

	// Registry is the registry of the task's image, such as ghcr.io: the worker pulls the image with the secret, which the task does not get.
	Registry string `json:"registry,omitempty"`
}

// Variable returns the variable with the value, "" for none.
func (s *Secret) Variable() string {
	if s.Env == "" && s.File == "" && s.Registry == "" {
		return s.Name
	}
	return s.Env
}

// MarshalJSON writes the short form where it means the same.
func (s Secret) MarshalJSON() ([]byte, error) {
	type plain Secret
	if s == (Secret{Name: s.Name}) {
		return json.Marshal(s.Name)
	}
	return json.Marshal(plain(s))
}

// UnmarshalJSON reads an object without unknown fields, or a string: Name.
func (s *Secret) UnmarshalJSON(b []byte) error {
	type plain Secret
	var got plain
	switch firstByte(b) {
	case '"':
		if err := json.Unmarshal(b, &got.Name); err != nil {
			return Errorf(Invalid, "secrets: %w", err)
		}
	case '{':
		if err := decodeStrict("secret", b, &got); err != nil {
			return err
		}
	default:
		return Errorf(Invalid, "%s is not a secret: write its name, such as HF_TOKEN, or an object with name, and env, file or registry", Truncate(string(b)))
	}
	*s = Secret(got)
	return nil
}

// SecretValue is the value of one of a task's secrets, on its way to the task.
type SecretValue struct {
	Name  string `json:"name"`
	Value []byte `json:"value"`
}

// String returns the name: no format prints the value.
func (s SecretValue) String() string { return s.Name }

// GoString is String for %#v.
func (s SecretValue) GoString() string { return s.Name }
