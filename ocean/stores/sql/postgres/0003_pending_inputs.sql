-- Only functions have changed: what is due in an inbox can be read. A script needs a statement, so this one says nothing.
SELECT;
