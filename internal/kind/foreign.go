package kind

import "sync"

// Foreign is the kind of tasks that a client of another system submitted for that system's own workers, which joined through a
// dialect: they are carried as they are. No worker of Muster's own offers it. Such a stage names the tag of the dialect in where.tags.
const Foreign = "foreign"

var foreign = sync.OnceValue(func() *Kind {
	k, err := ParseFile([]byte(`
name: foreign
about: Carry a task of another system to a worker of that system, as it is; no worker of Muster's own does.
entry: [muster, do, foreign]
input:
  type: object
  additionalProperties: false
  required: [system, type]
  properties:
    system: {type: string, minLength: 1, maxLength: 64, description: "The system, as its dialect is called."}
    type: {type: string, minLength: 1, maxLength: 256, description: "What that system calls the type of the task."}
    config: {type: object, description: "What that system tells its worker."}
`), Foreign)
	if err != nil {
		panic("kind: " + err.Error()) // the text is a constant
	}
	k.schemaParts = 0
	return k
})
