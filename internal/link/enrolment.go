package link

import (
	"slices"

	"github.com/muster-dev/muster"
)

// Enrolment is what a worker is bound to by the key by which it joined, whatever it says of itself.
type Enrolment struct {
	Token    string   // id of the key
	Project  string   // whose tasks it takes only; "" means all
	Tags     []string // that it has
	Reserved []string // that only workers have whose enrolment has them
	Pending  bool     // it waits for approval
}

// Bind changes an offer to what the worker may offer, and returns the reserved tags that it lacks and claimed. It returns Forbidden if the
// worker takes tasks of other projects only.
func (e *Enrolment) Bind(o *muster.Offer) (refused []string, err error) {
	tags := slices.Clone(e.Tags)
	for _, tag := range o.Tags {
		switch {
		case slices.Contains(e.Tags, tag):
		case slices.Contains(e.Reserved, tag):
			refused = append(refused, tag)
		default:
			tags = append(tags, tag)
		}
	}
	o.Tags = tags
	if e.Project == "" {
		return refused, nil
	}
	if len(o.Projects) > 0 && !slices.Contains(o.Projects, e.Project) {
		return refused, muster.Errorf(muster.Forbidden, "the worker joined for project %q and takes tasks of %q only: join with another token", e.Project, o.Projects)
	}
	o.Projects = []string{e.Project}
	return refused, nil
}
