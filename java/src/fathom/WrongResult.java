package fathom;

/** A wrong result; the message has the numbers. Such a run has no score. */
public final class WrongResult extends Exception {
    private static final long serialVersionUID = 1;

    public WrongResult(String message) {
        super(message);
    }
}
