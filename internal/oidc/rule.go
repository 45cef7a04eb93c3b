package oidc

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/auth"
)

// Rule gives users with a claim a role.
type Rule struct {
	Role    auth.Role
	Project string // the only project; "" means all
	Claim   string // of the ID token, such as groups or email
	Pattern string // of its value, or of one of its values; * stands for any characters
}

// ParseRule reads ROLE[/PROJECT]=CLAIM:PATTERN.
func ParseRule(s string) (Rule, error) {
	grant, condition, isRule := strings.Cut(s, "=")
	name, project, hasProject := strings.Cut(grant, "/")
	claim, pattern, isCondition := strings.Cut(condition, ":")
	if !isRule || !isCondition || claim == "" || pattern == "" || hasProject && project == "" {
		return Rule{}, muster.Errorf(muster.Invalid, "%q is not a rule: use ROLE=CLAIM:PATTERN or ROLE/PROJECT=CLAIM:PATTERN, such as submitter/vision=email:*@lab.example", s)
	}
	role, err := auth.ParseRole(name)
	switch {
	case err != nil:
		return Rule{}, err
	case role == auth.Worker || role == auth.Join:
		return Rule{}, muster.Errorf(muster.Invalid, "the rule %q is for the role %s, which is not one of users: use admin, operator, submitter or viewer", s, role)
	case hasProject && !role.ForProject():
		return Rule{}, muster.Errorf(muster.Invalid, "the rule %q has a project, but a key with the role %s is for all projects: omit the project", s, role)
	}
	return Rule{Role: role, Project: project, Claim: claim, Pattern: pattern}, nil
}

// String returns the form that ParseRule reads.
func (r Rule) String() string {
	grant := string(r.Role)
	if r.Project != "" {
		grant += "/" + r.Project
	}
	return grant + "=" + r.Claim + ":" + r.Pattern
}

// matches reports whether a user with these claims gets the rule's role. An email counts only if the provider says that it is verified: at some
// providers, users may set any.
func (r Rule) matches(claims map[string]any) bool {
	if verified, _ := claims["email_verified"].(bool); r.Claim == "email" && !verified {
		return false
	}
	for _, value := range texts(claims[r.Claim]) {
		if matchPattern(r.Pattern, value) {
			return true
		}
	}
	return false
}

// texts returns a claim's value, or its values if it is a list, as texts. Objects have none.
func texts(claim any) []string {
	switch v := claim.(type) {
	case string:
		return []string{v}
	case bool:
		return []string{strconv.FormatBool(v)}
	case float64:
		return []string{fmt.Sprint(v)}
	case []any:
		var list []string
		for _, element := range v {
			if _, nested := element.([]any); !nested {
				list = append(list, texts(element)...)
			}
		}
		return list
	}
	return nil
}

// matchPattern reports whether a text matches a pattern, in which * stands for any characters.
func matchPattern(pattern, text string) bool {
	parts := strings.Split(pattern, "*")
	if len(parts) == 1 {
		return text == pattern
	}
	first, last := parts[0], parts[len(parts)-1]
	if len(text) < len(first)+len(last) || !strings.HasPrefix(text, first) || !strings.HasSuffix(text, last) {
		return false
	}
	text = text[len(first) : len(text)-len(last)]
	for _, part := range parts[1 : len(parts)-1] {
		i := strings.Index(text, part)
		if i < 0 {
			return false
		}
		text = text[i+len(part):]
	}
	return true
}
