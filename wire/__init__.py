"""The messages on the wire, each defined once. It imports neither the bridge nor the console.

To read what somebody else sent: `record.check_record` returns a record and its data as values
(`EventData`, `ReceiptData`, `HeartbeatData` and so on, each an `Observer` with `vm`, `node` and
`bridge`); `state.read_state` and `state.read_status` read the messages that a broker retains. They
are strict, and their errors have a `reason` of one word. `record.read_record` trusts its bytes: it
is for records that this process has sealed. `fields.fields_of` lists the fields of any of these
classes, with their meanings.
"""
